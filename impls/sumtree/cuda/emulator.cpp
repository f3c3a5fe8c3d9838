// Runs CUDA kernels on the host, so that their text can be tested where no GPU is.
//
// Every thread of a block is a fiber. A fiber runs until it comes to a collective; there it leaves its value and rests
// until all whom the collective names have come to the same one, and only then do any go on. That is what the hardware
// promises and no more: between collectives nothing is ordered, and fibers start by turns in ascending and in
// descending order, so that a missing barrier shows. A wait for lanes that never come is an error.
// The blocks of a grid are shared among threads of the operating system, so that atomics between blocks have rivals.
#include <setjmp.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "emulator.h"

namespace {

constexpr int WORKERS = 4;  // rivals, however few the processors
constexpr int STACK_BYTES = 1 << 16;
constexpr int WARP = 32;
constexpr unsigned long long POISON = 0x7ff4dead7ff4deadull;  // what a shuffle from an absent lane gives

enum State { FRESH, READY, WAITING, DONE };

struct Fiber {
    ucontext_t start;
    jmp_buf place;
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
    bool begun = false;  // whether it sleeps in its loop, ready for another thread
    State state = DONE;
    Emulated where;
    int kind = 0, source = 0;
    unsigned mask = 0;
    unsigned long long value = 0, result = 0;
};

struct Block {
    std::vector<std::unique_ptr<Fiber>> fibers;
    jmp_buf scheduler;
    Fiber* running = nullptr;
    int threads = 0;
    void (*body)(void**) = nullptr;
    void** arguments = nullptr;
};

thread_local Block* block = nullptr;  // of the worker

void rest() {
    if (!_setjmp(block->running->place)) _longjmp(block->scheduler, 1);
}

void fiber_main() {
    for (;;) {
        block->body(block->arguments);
        block->running->state = DONE;
        rest();
    }
}

void resume(Fiber& fiber) {
    block->running = &fiber;
    fiber.state = READY;
    if (_setjmp(block->scheduler)) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    fiber.begun = true;
    getcontext(&fiber.start);
    fiber.start.uc_stack.ss_sp = fiber.stack.get();
    fiber.start.uc_stack.ss_size = STACK_BYTES;
    fiber.start.uc_link = nullptr;
    makecontext(&fiber.start, fiber_main, 0);
    setcontext(&fiber.start);
}

// Lets the lanes of a warp go on if all of the mask have come.
void meet(int first, const Fiber& last) {
    unsigned long long ballot = 0;
    for (int lane = 0; lane < WARP; ++lane) {
        if (!(last.mask >> lane & 1)) continue;
        if (first + lane >= block->threads) return;
        const Fiber& other = *block->fibers[first + lane];
        if (other.state != WAITING || other.kind != last.kind || other.mask != last.mask) return;
        ballot |= (other.value & 1) << lane;
    }
    for (int lane = 0; lane < WARP; ++lane) {
        if (!(last.mask >> lane & 1)) continue;
        Fiber& one = *block->fibers[first + lane];
        const bool present = one.source >= 0 && one.source < WARP && one.mask >> one.source & 1;
        one.result = one.kind == BALLOT ? ballot : present ? block->fibers[first + one.source]->value : POISON;
    }
    for (int lane = 0; lane < WARP; ++lane)
        if (last.mask >> lane & 1) block->fibers[first + lane]->state = READY;
}

// Lets the block go on if every thread that has not ended is at the barrier.
bool pass_barrier() {
    unsigned long long any = 0;
    int waiting = 0;
    for (int at = 0; at < block->threads; ++at) {
        const Fiber& one = *block->fibers[at];
        if (one.state == DONE) continue;
        if (one.state != WAITING || one.kind != BARRIER) return false;
        any |= one.value, ++waiting;
    }
    for (int at = 0; at < block->threads; ++at) {
        Fiber& one = *block->fibers[at];
        if (one.state == WAITING) one.result = any, one.state = READY;
    }
    return waiting > 0;
}

// Runs one block to its end; false if its threads wait for each other in vain.
bool run_block(unsigned number, unsigned threads, bool descending) {
    block->threads = threads;
    while (block->fibers.size() < threads) block->fibers.emplace_back(new Fiber);
    for (unsigned at = 0; at < threads; ++at) {
        block->fibers[at]->state = FRESH;
        block->fibers[at]->where = {{at}, {number}, {threads}};
    }
    // Invariant: a fiber is FRESH, or READY to go on, or WAITING at a collective that others have yet to reach, or DONE.
    for (;;) {
        bool moved = false, waiting = false;
        for (unsigned turn = 0; turn < threads; ++turn) {
            Fiber& fiber = *block->fibers[descending ? threads - 1 - turn : turn];
            if (fiber.state == FRESH || fiber.state == READY) resume(fiber), moved = true;
            waiting = waiting || fiber.state == WAITING;
        }
        if (!waiting) return true;
        if (!moved && !pass_barrier()) break;
    }
    for (auto& fiber : block->fibers) fiber->begun = false;  // what they were in the midst of is given up
    return false;
}

struct Grid {
    void (*body)(void**);
    void** arguments;
    unsigned blocks, threads;
    bool descending;
    std::atomic<unsigned> next{0};
    std::atomic<bool> stuck{false};
};

void share(Grid& grid) {
    if (!block) block = new Block;
    block->body = grid.body;
    block->arguments = grid.arguments;
    for (unsigned turn; (turn = grid.next++) < grid.blocks;)
        if (!run_block(grid.descending ? grid.blocks - 1 - turn : turn, grid.threads, grid.descending))
            grid.stuck = true;
}

// Workers wait for a grid, share it, and say when they are through. They live as long as the process.
struct Pool {
    std::mutex lock;
    std::condition_variable begin, end;
    Grid* grid = nullptr;
    unsigned long long launches = 0;
    int busy = 0;
    pid_t process = getpid();

    Pool() {
        for (int one = 1; one < WORKERS; ++one) std::thread([this] { work(); }).detach();
    }
    void work() {
        unsigned long long seen = 0;
        for (;;) {
            Grid* mine;
            {
                std::unique_lock<std::mutex> hold(lock);
                begin.wait(hold, [&] { return launches != seen; });
                seen = launches, mine = grid;
            }
            share(*mine);
            std::lock_guard<std::mutex> hold(lock);
            if (--busy == 0) end.notify_one();
        }
    }
    void run(Grid& given) {
        {
            std::lock_guard<std::mutex> hold(lock);
            grid = &given, busy = WORKERS - 1, ++launches;
        }
        begin.notify_all();
        share(given);
        std::unique_lock<std::mutex> hold(lock);
        end.wait(hold, [&] { return busy == 0; });
    }
};

std::mutex one_launch_at_a_time;
Pool* pool = nullptr;
bool descending = true;

}  // namespace

const Emulated* emulator_here() { return &block->running->where; }

unsigned long long emulator_exchange(int kind, unsigned mask, unsigned long long value, int source) {
    Fiber& self = *block->running;
    const int number = self.where.thread.x, first = number / WARP * WARP;
    self.kind = kind, self.mask = mask, self.value = value, self.source = source;
    self.state = WAITING;
    if (kind != BARRIER && mask >> (number - first) & 1) meet(first, self);  // else it waits for ever
    if (self.state == WAITING) rest();
    return self.result;
}

const char* emulator_launch(void (*body)(void**), void** arguments, unsigned blocks, unsigned threads) {
    std::lock_guard<std::mutex> hold(one_launch_at_a_time);
    Grid grid{body, arguments, blocks, threads, descending = !descending};
    if (blocks == 1) {
        share(grid);
    } else {
        if (!pool || pool->process != getpid()) pool = new Pool;  // a fork leaves its threads behind
        pool->run(grid);
    }
    return grid.stuck ? "threads of a block wait for others that never come to the same collective" : nullptr;
}
