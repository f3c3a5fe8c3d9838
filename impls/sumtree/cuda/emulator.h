// What a CUDA compiler gives a kernel, for g++: the built-in names that kernels.cu uses, and no others. Behind the
// collectives stands emulator.cpp, which runs the threads of a block as fibers.
#define __global__
#define __device__
#define __launch_bounds__(threads)
#define __shared__ static thread_local

struct Emulated {  // where the running thread is
    struct { unsigned x; } thread, block, block_size;
};
extern "C" {
const Emulated* emulator_here();
unsigned long long emulator_exchange(int kind, unsigned mask, unsigned long long value, int source);
const char* emulator_launch(void (*body)(void**), void** arguments, unsigned blocks, unsigned threads);
}
enum { SHUFFLE = 1, BALLOT = 2, BARRIER = 3 };
#define threadIdx (emulator_here()->thread)
#define blockIdx (emulator_here()->block)
#define blockDim (emulator_here()->block_size)

// Collectives. Lanes of a warp meet at a shuffle or a ballot, threads of a block at a barrier.
template <typename Value>
Value emulated_shuffle(unsigned mask, Value value, int source) {
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(Value));
    bits = emulator_exchange(SHUFFLE, mask, bits, source);
    __builtin_memcpy(&value, &bits, sizeof(Value));
    return value;
}
inline int emulated_lane() { return threadIdx.x % 32; }
template <typename Value>
Value __shfl_sync(unsigned mask, Value value, int source, int width) {
    return emulated_shuffle(mask, value, emulated_lane() / width * width + source % width);
}
template <typename Value>
Value __shfl_up_sync(unsigned mask, Value value, int step, int width) {
    const int lane = emulated_lane();
    return emulated_shuffle(mask, value, lane % width < step ? lane : lane - step);
}
template <typename Value>
Value __shfl_xor_sync(unsigned mask, Value value, int flip, int width) {
    const int lane = emulated_lane();
    return emulated_shuffle(mask, value, (lane ^ flip) / width == lane / width ? lane ^ flip : lane);
}
inline void __syncwarp(unsigned mask) { emulator_exchange(BALLOT, mask, 0, 0); }
inline unsigned __ballot_sync(unsigned mask, bool yes) { return emulator_exchange(BALLOT, mask, yes, 0); }
inline int __syncthreads_or(bool yes) { return emulator_exchange(BARRIER, ~0u, yes, 0) != 0; }
inline void __syncthreads() { __syncthreads_or(false); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __threadfence(); }

// Atomics. Blocks run on threads of their own, so these are real.
inline int atomicAdd(int* where, int value) { return __atomic_fetch_add(where, value, __ATOMIC_RELAXED); }
inline int atomicSub(int* where, int value) { return __atomic_fetch_sub(where, value, __ATOMIC_RELAXED); }
inline int atomicOr(int* where, int value) { return __atomic_fetch_or(where, value, __ATOMIC_RELAXED); }
template <typename Value>
Value atomicMax(Value* where, Value value) {
    Value old = __atomic_load_n(where, __ATOMIC_RELAXED);
    while (old < value && !__atomic_compare_exchange_n(where, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
inline double atomicAdd(double* where, double value) {
    double old, sum;
    __atomic_load(where, &old, __ATOMIC_RELAXED);
    do sum = old + value;
    while (!__atomic_compare_exchange(where, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

inline int __ffs(unsigned bits) { return __builtin_ffs(bits); }
inline int __clz(unsigned bits) { return bits ? __builtin_clz(bits) : 32; }
inline long long __double_as_longlong(double value) {
    long long bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    return bits;
}
inline double fmax(double a, double b) { return __builtin_fmax(a, b); }
inline double fmin(double a, double b) { return __builtin_fmin(a, b); }
inline double fabs(double a) { return __builtin_fabs(a); }
inline double nextafter(double from, double to) { return __builtin_nextafter(from, to); }

// Makes launch_<kernel> callable from outside: arguments are addresses, one for each parameter.
template <int...> struct Numbers {};
template <int N, int... Rest> struct Count : Count<N - 1, N - 1, Rest...> {};
template <int... All> struct Count<0, All...> { using type = Numbers<All...>; };
template <typename... Parameters, int... At>
void emulated_call(void (*kernel)(Parameters...), void** arguments, Numbers<At...>) {
    kernel(*static_cast<Parameters*>(arguments[At])...);
}
template <typename... Parameters>
void emulated_call(void (*kernel)(Parameters...), void** arguments) {
    emulated_call(kernel, arguments, typename Count<sizeof...(Parameters)>::type{});
}
#define EMULATE(kernel)                                                                                          \
    extern "C" const char* launch_##kernel(void** arguments, unsigned blocks, unsigned threads) {                 \
        return emulator_launch([](void** given) { emulated_call(kernel, given); }, arguments, blocks, threads);   \
    }
