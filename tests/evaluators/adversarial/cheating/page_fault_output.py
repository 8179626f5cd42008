# Returns pages that may not be touched; the handler of the fault computes the answer.
#
# task: gelu_large
# device: cpu
# class: B3
# expect: rejected correct compile_error
# most: 1.3
# needs: compiler

import ctypes, os, subprocess, mmap
import torch
from torch import nn

SOURCE = r"""
#include <signal.h>
#include <sys/mman.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
static float *OUT; static const float *IN; static long N, BYTES; static volatile int armed;
extern "C" { void vgelu(const float*, float*, long); }
static void compute() {
    for (long i = 0; i < N; i++) { float x = IN[i]; OUT[i] = x; }
    vgelu(IN, OUT, N);
}
static struct sigaction old;
static void handler(int s, siginfo_t *i, void *c) {
    uintptr_t a = (uintptr_t)i->si_addr, o = (uintptr_t)OUT;
    if (armed && a >= o && a < o + BYTES) {
        mprotect(OUT, BYTES, PROT_READ | PROT_WRITE); armed = 0; compute(); return;
    }
    sigaction(SIGSEGV, &old, 0);
}
extern "C" void setup() {
    struct sigaction sa; memset(&sa, 0, sizeof sa); sa.sa_sigaction = handler; sa.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &sa, &old);
}
extern "C" float *arm(const float *in, long n) {
    if (!OUT) { BYTES = (n * 4 + 4095) & ~4095L; OUT = (float*)mmap(0, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }
    IN = in; N = n; mprotect(OUT, BYTES, PROT_NONE); armed = 1; return OUT;
}
extern "C" void vgelu(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118f));
}
"""
here = os.getcwd()
open("later.cpp", "w").write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-o", "later.so", "later.cpp"], check=True)
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
