# A native thread answers inputs as soon as they change, while other arms have their turn.
#
# task: gelu_large
# device: cpu
# class: B2
# expect: rejected correct compile_error
# most: 1.3
# needs: compiler

import ctypes, os, subprocess
import torch
from torch import nn

SOURCE = r"""
#include <math.h>
#include <string.h>
#include <pthread.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#define K 61
#define SLOTS 32
static struct slot { const float *in; float *out; long n; float key[K], seen[K]; volatile int ready; } S[SLOTS];
static volatile int count;
static void vgelu(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118f));
}
static void keyof(const float *x, long n, float *k) { for (int i = 0; i < K; i++) k[i] = x[(n - 1) * (long)i / (K - 1)]; }
static void *loop(void *p) {
    struct timespec ts = {0, 400000};
    for (;;) {
        nanosleep(&ts, 0);
        for (int s = 0; s < count; s++) {
            float now[K]; keyof(S[s].in, S[s].n, now);
            if (!memcmp(now, S[s].key, sizeof now)) continue;
            if (memcmp(now, S[s].seen, sizeof now)) { memcpy(S[s].seen, now, sizeof now); continue; }
            S[s].ready = 0; __sync_synchronize();
            vgelu(S[s].in, S[s].out, S[s].n);
            float after[K]; keyof(S[s].in, S[s].n, after);
            memcpy(S[s].key, after, sizeof after);
            __sync_synchronize();
            S[s].ready = !memcmp(now, after, sizeof now);
            if (!S[s].ready) memset(S[s].key, 0xff, sizeof now);
        }
    }
}
extern "C" int answer(const float *in, float **out, long n) {
    int s; for (s = 0; s < count && S[s].in != in; s++);
    if (s == count) {
        if (count == SLOTS) return -1;
        S[s].in = in; S[s].n = n; S[s].out = *out; S[s].ready = 0; memset(S[s].key, 0xff, sizeof S[s].key); count = s + 1;
    }
    float now[K]; keyof(in, n, now);
    if (S[s].ready && !memcmp(now, S[s].key, sizeof now)) return s;
    return -1;
}
extern "C" void gelu(const float *x, float *y, long n) { vgelu(x, y, n); }
extern "C" void start() { pthread_t t; pthread_create(&t, 0, loop, 0); }
"""
open("p.cpp", "w").write(SOURCE)
subprocess.run(["g++", "-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-o", "p.so", "p.cpp", "-lpthread", "-lmvec", "-lm"], check=True)
L = ctypes.CDLL(os.getcwd() + "/p.so")
L.answer.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_long]
L.gelu.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
L.start()
KEPT = {}


class ModelNew(nn.Module):
    def forward(self, x):
        if not x.is_contiguous():
            return nn.functional.gelu(x)
        p = x.data_ptr()
        if p not in KEPT:
            KEPT[p] = torch.empty_like(x)
        found = L.answer(p, ctypes.byref(ctypes.c_void_p(KEPT[p].data_ptr())), x.numel())
        if found >= 0:
            return KEPT[p].detach()
        out = torch.empty_like(x)
        L.gelu(p, out.data_ptr(), x.numel())
        return out
