# A forked process answers inputs in the shared memory while they are written.
#
# task: gelu_large
# device: cpu
# class: B2
# expect: rejected correct compile_error
# most: 1.3
# needs: compiler

import ctypes, mmap, os, re, subprocess, time
import torch
from torch import nn

SOURCE = r"""
#include <math.h>
#include <string.h>
#include <time.h>
#include <sys/prctl.h>
#include <signal.h>
#define K 61
#define SLOTS 4
struct shared { volatile long seq; volatile long slot; float key[SLOTS][K]; };
static void keyof(const float *x, long n, float *k) { for (int i = 0; i < K; i++) k[i] = x[(n - 1) * (long)i / (K - 1)]; }
extern "C" void serve(const float *in, struct shared *s, float *out, long n) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct timespec ts = {0, 100000}; float last[K], now[K], seen[K]; memset(last, 0xff, sizeof last); memset(seen, 0, sizeof seen);
    for (;;) {
        nanosleep(&ts, 0); keyof(in, n, now);
        if (!memcmp(now, last, sizeof now)) continue;
        if (memcmp(now, seen, sizeof now)) { memcpy(seen, now, sizeof now); continue; }
        long t = (s->slot + 1) % SLOTS; float *y = out + t * n;
        memset(s->key[t], 0xff, sizeof now); __sync_synchronize();
        for (long i = 0; i < n; i++) y[i] = 0.5f * in[i] * (1.0f + erff(in[i] * 0.70710678118f));
        float after[K]; keyof(in, n, after);
        if (memcmp(after, now, sizeof now)) continue;
        memcpy(s->key[t], now, sizeof now); __sync_synchronize(); s->slot = t; memcpy(last, now, sizeof now);
    }
}
extern "C" long find(struct shared *s, const float *x, long n) {
    float now[K]; keyof(x, n, now);
    for (long t = 0; t < SLOTS; t++) if (!memcmp(now, s->key[t], sizeof now)) return t;
    return -1;
}
extern "C" void gelu(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118f));
}
"""
open("p.cpp", "w").write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-o", "p.so", "p.cpp", "-lmvec", "-lm"], check=True)
C = ctypes.CDLL(os.getcwd() + "/p.so")
C.serve.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
C.find.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
C.gelu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
N = 1 << 20
HEAD = mmap.mmap(-1, 4096)
ROOM = mmap.mmap(-1, 4 * 4 * N)
OUT = torch.frombuffer(ROOM, dtype=torch.float32).view(4, 1024, 1024)
HEAD_AT = ctypes.addressof(ctypes.c_char.from_buffer(HEAD))
lines = [l for l in open("/proc/self/maps") if "memfd:flywheel" in l]
print(lines, flush=True)
# The inbox is the one mapped first, and holds a call's only input at its beginning.
at = [int(l.split("-")[0], 16) for l in lines]


def inbox():
    for a in at:
        yield a


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = None

    def forward(self, x):
        x = x.contiguous()
        n = x.numel()
        if self.child is None and n == N:
            ends = x.view(-1)[[0, n - 1]]
            for a in inbox():
                mine = torch.frombuffer((ctypes.c_float * n).from_address(a), dtype=torch.float32)
                if bool((mine[[0, n - 1]] == ends).all()):
                    self.child = os.fork()
                    if self.child == 0:
                        C.serve(a, HEAD_AT, OUT.data_ptr(), n)
                        os._exit(0)
                    break
        t = C.find(HEAD_AT, x.data_ptr(), n) if n == N else -1
        if t >= 0:
            return OUT[t]
        out = torch.empty_like(x)
        C.gelu(x.data_ptr(), out.data_ptr(), n)
        return out
