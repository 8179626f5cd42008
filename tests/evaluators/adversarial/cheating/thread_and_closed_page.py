# Returns memory that cannot be touched until a thread has computed the answer.
#
# task: gelu_large
# device: cpu
# class: B2
# expect: rejected incorrect correct compile_error
# most: 1.3
# needs: compiler

import ctypes, os, subprocess
import torch
from torch import nn

SOURCE = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
#include <semaphore.h>
static float *OUT, *BEHIND; static const float *IN; static long N, BYTES;
static volatile int armed; static sem_t go, done; static struct sigaction old;
static void *loop(void *p) {
    for (;;) { sem_wait(&go); const float *x = IN; for (long i = 0; i < N; i++) BEHIND[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118f)); sem_post(&done); }
}
static void settle() { if (armed) { while (sem_wait(&done)); armed = 0; } }
static void handler(int s, siginfo_t *i, void *c) {
    uintptr_t a = (uintptr_t)i->si_addr, o = (uintptr_t)OUT;
    if (OUT && a >= o && a < o + BYTES) { settle(); mprotect(OUT, BYTES, PROT_READ | PROT_WRITE); return; }
    sigaction(SIGSEGV, &old, 0);
}
extern "C" void setup() {
    struct sigaction sa; memset(&sa, 0, sizeof sa); sa.sa_sigaction = handler; sa.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &sa, &old); sem_init(&go, 0, 0); sem_init(&done, 0, 0);
}
extern "C" float *arm(const float *in, long n) {
    if (!OUT) {
        BYTES = (n * 4 + 4095) & ~4095L; int fd = memfd_create("o", 0); ftruncate(fd, BYTES);
        OUT = (float*)mmap(0, BYTES, PROT_NONE, MAP_SHARED, fd, 0); BEHIND = (float*)mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
        pthread_t t; pthread_create(&t, 0, loop, 0);
    }
    settle(); IN = in; N = n; mprotect(OUT, BYTES, PROT_NONE); armed = 1; sem_post(&go); return OUT;
}
"""
here = os.getcwd()
open("later.cpp", "w").write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-o", "later.so", "later.cpp", "-lpthread", "-lmvec", "-lm"], check=True)
L = ctypes.CDLL(here + "/later.so")
L.arm.restype = ctypes.c_void_p
L.arm.argtypes = [ctypes.c_void_p, ctypes.c_long]
L.setup()
HELD = {}


class ModelNew(nn.Module):
    def forward(self, x):
        at = L.arm(x.data_ptr(), x.numel())
        if at not in HELD:
            raw = (ctypes.c_float * x.numel()).from_address(at)
            HELD[at] = torch.frombuffer(raw, dtype=torch.float32).view(x.shape)
        return HELD[at].detach()
