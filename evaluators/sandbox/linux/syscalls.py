"""Linux system calls by number, and who may make them.

Each line of the table has a name, the number on x86_64 and on aarch64 (a minus where there is no
such call), and words. `worker`: a worker may make the call. `modes`, `system_v`, `attributes`: a
worker may make it where the machine allows (`seccomp`). `not_judge`: a judge may not make it.
Workers may not make any other call. The numbers are from the kernel's headers.
"""

from __future__ import annotations

LAST = 469
"""The newest call in this table, of Linux 6.17."""

_TABLE = """
accept 43 202 worker
accept4 288 242 worker
access 21 - worker
acct 163 89 not_judge
add_key 248 217 not_judge
adjtimex 159 171 not_judge
alarm 37 - worker
arch_prctl 158 - worker
bind 49 200 worker
bpf 321 280 not_judge
brk 12 214 worker
capget 125 90 worker
chdir 80 49 worker
chmod 90 - modes
chown 92 - modes
chroot 161 51 not_judge
clock_adjtime 305 266 not_judge
clock_getres 229 114 worker
clock_gettime 228 113 worker
clock_nanosleep 230 115 worker
clock_settime 227 112 not_judge
clone 56 220 worker
clone3 435 435 other
close 3 57 worker
close_range 436 436 worker
connect 42 203 worker not_judge
copy_file_range 326 285 worker
creat 85 - worker
delete_module 176 106 not_judge
dup 32 23 worker
dup2 33 - worker
dup3 292 24 worker
epoll_create 213 - worker
epoll_create1 291 20 worker
epoll_ctl 233 21 worker
epoll_pwait 281 22 worker
epoll_pwait2 441 441 worker
epoll_wait 232 - worker
eventfd 284 - worker
eventfd2 290 19 worker
execve 59 221 worker
execveat 322 281 worker
exit 60 93 worker
exit_group 231 94 worker
faccessat 269 48 worker
faccessat2 439 439 worker
fadvise64 221 223 worker
fallocate 285 47 worker
fanotify_init 300 262 not_judge
fchdir 81 50 worker
fchmod 91 52 modes
fchmodat 268 53 modes
fchmodat2 452 452 modes
fchown 93 55 modes
fchownat 260 54 modes
fcntl 72 25 worker
fdatasync 75 83 worker
fgetxattr 193 10 worker
finit_module 313 273 not_judge
flistxattr 196 13 worker
flock 73 32 worker
fork 57 - worker
fremovexattr 199 16 attributes
fsconfig 431 431 not_judge
fsetxattr 190 7 attributes
fsmount 432 432 not_judge
fsopen 430 430 not_judge
fspick 433 433 not_judge
fstat 5 80 worker
fstatfs 138 44 worker
fsync 74 82 worker
ftruncate 77 46 worker
futex 202 98 worker
futex_requeue 456 456 worker
futex_wait 455 455 worker
futex_waitv 449 449 worker
futex_wake 454 454 worker
futimesat 261 - modes
get_mempolicy 239 236 worker
get_robust_list 274 100 worker
getcpu 309 168 worker
getcwd 79 17 worker
getdents 78 - worker
getdents64 217 61 worker
getegid 108 177 worker
geteuid 107 175 worker
getgid 104 176 worker
getgroups 115 158 worker
getitimer 36 102 worker
getpeername 52 205 worker
getpgid 121 155 worker
getpgrp 111 - worker
getpid 39 172 worker
getppid 110 173 worker
getpriority 140 141 worker
getrandom 318 278 worker
getresgid 120 150 worker
getresuid 118 148 worker
getrlimit 97 163 worker
getrusage 98 165 worker
getsid 124 156 worker
getsockname 51 204 worker
getsockopt 55 209 worker
gettid 186 178 worker
gettimeofday 96 169 worker
getuid 102 174 worker
getxattr 191 8 worker
init_module 175 105 not_judge
io_uring_enter 426 426 not_judge
io_uring_register 427 427 not_judge
io_uring_setup 425 425 not_judge
ioctl 16 29 worker not_judge
ioperm 173 - not_judge
iopl 172 - not_judge
ioprio_get 252 31 worker
ioprio_set 251 30 worker
kcmp 312 272 not_judge
kexec_file_load 320 294 not_judge
kexec_load 246 104 not_judge
keyctl 250 219 not_judge
kill 62 129 worker not_judge
lchown 94 - modes
lgetxattr 192 9 worker
link 86 - worker
linkat 265 37 worker
listen 50 201 worker
listxattr 194 11 worker
llistxattr 195 12 worker
lremovexattr 198 15 attributes
lseek 8 62 worker
lsetxattr 189 6 attributes
lstat 6 - worker
madvise 28 233 worker
map_shadow_stack 453 453 worker
mbind 237 235 worker
membarrier 324 283 worker
memfd_create 319 279 worker
migrate_pages 256 238 not_judge
mincore 27 232 worker
mkdir 83 - worker
mkdirat 258 34 worker
mknod 133 - worker
mknodat 259 33 worker
mlock 149 228 worker
mlock2 325 284 worker
mlockall 151 230 worker
mmap 9 222 worker
mount 165 40 not_judge
mount_setattr 442 442 not_judge
move_mount 429 429 not_judge
move_pages 279 239 not_judge
mprotect 10 226 worker
mremap 25 216 worker
mseal 462 462 worker
msync 26 227 worker
munlock 150 229 worker
munlockall 152 231 worker
munmap 11 215 worker
nanosleep 35 101 worker
newfstatat 262 79 worker
open 2 - worker
open_by_handle_at 304 265 not_judge
open_tree 428 428 not_judge
openat 257 56 worker
openat2 437 437 worker
pause 34 - worker
perf_event_open 298 241 not_judge
personality 135 92 worker
pidfd_getfd 438 438 not_judge
pidfd_open 434 434 worker
pidfd_send_signal 424 424 worker
pipe 22 - worker
pipe2 293 59 worker
pivot_root 155 41 not_judge
pkey_alloc 330 289 worker
pkey_free 331 290 worker
pkey_mprotect 329 288 worker
poll 7 - worker
ppoll 271 73 worker
prctl 157 167 worker not_judge
pread64 17 67 worker
preadv 295 69 worker
preadv2 327 286 worker
prlimit64 302 261 worker not_judge
process_madvise 440 440 not_judge
process_vm_writev 311 271 not_judge
pselect6 270 72 worker
ptrace 101 117 not_judge
pwrite64 18 68 worker
pwritev 296 70 worker
pwritev2 328 287 worker
quotactl 179 60 not_judge
read 0 63 worker
readahead 187 213 worker
readlink 89 - worker
readlinkat 267 78 worker
readv 19 65 worker
reboot 169 142 not_judge
recvfrom 45 207 worker
recvmmsg 299 243 worker
recvmsg 47 212 worker
remap_file_pages 216 234 worker
removexattr 197 14 attributes
rename 82 - worker
renameat 264 38 worker
renameat2 316 276 worker
request_key 249 218 not_judge
restart_syscall 219 128 worker
rmdir 84 - worker
rseq 334 293 worker
rt_sigaction 13 134 worker
rt_sigpending 127 136 worker
rt_sigprocmask 14 135 worker
rt_sigqueueinfo 129 138 worker
rt_sigreturn 15 139 worker
rt_sigsuspend 130 133 worker
rt_sigtimedwait 128 137 worker
rt_tgsigqueueinfo 297 240 worker
sched_get_priority_max 146 125 worker
sched_get_priority_min 147 126 worker
sched_getaffinity 204 123 worker
sched_getattr 315 275 worker
sched_getparam 143 121 worker
sched_getscheduler 145 120 worker
sched_rr_get_interval 148 127 worker
sched_setaffinity 203 122 worker
sched_setattr 314 274 worker
sched_setparam 142 118 worker
sched_setscheduler 144 119 worker
sched_yield 24 124 worker
seccomp 317 277 other
select 23 - worker
semctl 66 191 system_v
semget 64 190 system_v
semop 65 193 system_v
semtimedop 220 192 system_v
sendfile 40 71 worker
sendmmsg 307 269 worker
sendmsg 46 211 worker
sendto 44 206 worker
set_mempolicy 238 237 worker
set_mempolicy_home_node 450 450 worker
set_robust_list 273 99 worker
set_tid_address 218 96 worker
setdomainname 171 162 not_judge
sethostname 170 161 not_judge
setitimer 38 103 worker
setpgid 109 154 worker
setpriority 141 140 worker
setrlimit 160 164 worker
setsid 112 157 worker
setsockopt 54 208 worker
settimeofday 164 170 not_judge
setxattr 188 5 attributes
shmat 30 196 system_v
shmctl 31 195 system_v
shmdt 67 197 system_v
shmget 29 194 system_v
shutdown 48 210 worker
sigaltstack 131 132 worker
signalfd 282 - worker
signalfd4 289 74 worker
socket 41 198 worker not_judge
socketpair 53 199 worker
splice 275 76 worker
stat 4 - worker
statfs 137 43 worker
statx 332 291 worker
swapoff 168 225 not_judge
swapon 167 224 not_judge
symlink 88 - worker
symlinkat 266 36 worker
sync_file_range 277 84 worker
sysinfo 99 179 worker
syslog 103 116 not_judge
tee 276 77 worker
tgkill 234 131 worker
time 201 - worker
timer_create 222 107 worker
timer_delete 226 111 worker
timer_getoverrun 225 109 worker
timer_gettime 224 108 worker
timer_settime 223 110 worker
timerfd_create 283 85 worker
timerfd_gettime 287 87 worker
timerfd_settime 286 86 worker
times 100 153 worker
tkill 200 130 worker
truncate 76 45 worker
umask 95 166 worker
umount2 166 39 not_judge
uname 63 160 worker
unlink 87 - worker
unlinkat 263 35 worker
userfaultfd 323 282 not_judge
utime 132 - modes
utimensat 280 88 modes
utimes 235 - modes
vfork 58 - worker
vhangup 153 58 not_judge
vmsplice 278 75 worker
wait4 61 260 worker
waitid 247 95 worker
write 1 64 worker
writev 20 66 worker
"""


def map_numbers(machine: str) -> dict[str, int]:
    """Return the numbers of calls on a machine (x86_64 or aarch64) by name.

    >>> x86_64, aarch64 = map_numbers("x86_64"), map_numbers("aarch64")
    >>> x86_64["mount"], aarch64["mount"], "fork" in aarch64
    (165, 40, False)
    """
    column = {"x86_64": 1, "aarch64": 2}[machine]
    return {row[0]: int(row[column]) for row in _read_rows() if row[column] != "-"}


def list_names(word: str) -> set[str]:
    """Return the names of the calls with a word.

    >>> list_names("attributes") & {"setxattr", "getxattr"}
    {'setxattr'}
    """
    return {row[0] for row in _read_rows() if word in row[3:]}


def _read_rows() -> list[list[str]]:
    return [[str(word) for word in line.split()] for line in _TABLE.split("\n") if line]
