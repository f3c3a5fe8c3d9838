// The kernels of the GPU tree: search, update, retrieval, audit.
//
// Whoever compiles this text sets its constants:
//   LEAF     float or double
//   FANOUT   K where it is known to the compiler (a power of two), else 0 and the width comes with the tree
//   LANES    threads that share one element of the batch, 1 .. 32, a power of two: 1 is a thread for each sample, 32 a
//            warp for each, its lanes the children
//   DELTA    1: an update adds each leaf's change to its ancestors by atomics; 0: it sums the touched groups anew
//   PACKED   1: every group starts on a multiple of 16 bytes, so that children are read in packs of 16 bytes
//
// Levels are counted from the leaves, as in levels.py; node n's children are n * width .. n * width + width - 1 of the
// level below, and a ragged level is filled up to whole groups with zeros. ``mass`` is a prefix value.
//
// An update has two phases, with a barrier of the whole grid between them. First each element claims its leaf (the
// highest position, hence the last duplicate, wins) and announces itself to its ancestors: the first to announce at a
// node goes on to the parent. Then each element writes, and the last to finish below a node sums that node and goes on
// upward. No thread waits for another, and each touched group is summed once.
// Invariant: between the phases pending[node] is the number of announcements at the node: of elements on level 1, of
// children that will change above it. Between updates claims and pending are zero.

typedef long long Index;

constexpr int MOST_LEVELS = 64;
constexpr int TOLD = 0, REFUSED = 1, BLOCKS = 2;  // words of the status: a refusal is reported, this update is refused,
                                                  // blocks of this update that have finished
constexpr int WHY = 0, POSITION = 1, INDEX = 2, VALUE = 3, BOUND = 4, TOTAL = 5;  // words of the report
constexpr int BAD_INDEX = 1, BAD_PRIORITY = 2, BAD_UNIFORM = 3, BAD_MASS = 4, EMPTY = 5;  // its first word
constexpr int WIDE = 0, NARROW = 1, SCALAR = 2;  // types of numbers: 8 bytes, 4 bytes, the same for all

// The tree as it is passed to a kernel, by value; program.py describes it to NumPy.
struct Tree {
    LEAF* leaves;
    double* sums;          // inner nodes: level l begins at start[l]
    int* claims;           // [capacity]
    int* pending;          // as sums
    int* status;           // [3]
    volatile Index* report;  // [6], in memory that the host reads without waiting
    Index* batch_indices;  // the batch of an update, copied when it is inspected: what the caller's memory holds later
    LEAF* batch_values;    // changes nothing
    Index checked;         // whether a batch is inspected, and a refused update writes nothing
    Index capacity, width, height;
    double highest;        // the largest priority
    Index start[MOST_LEVELS];

    __device__ Index children() const { return FANOUT ? Index(FANOUT) : width; }
    __device__ Index parent(Index node) const { return node / children(); }
    __device__ double total() const { return sums[start[height]]; }
    __device__ double& sum(int level, Index node) const { return sums[start[level] + node]; }
};

// What a call asks for: its input and its output [batch].
struct Call {
    const void* indices;
    const void* reals;     // priorities, uniforms, or prefix values
    Index* found;
    LEAF* priorities;
    unsigned long long* worst;  // [1]: bits of the largest difference, which order as the doubles do
    Index index_type, real_type, batch;
    Index uniform;         // whether the reals of a search are uniforms
    Index blocks;          // of this launch
    Index level, repair;   // of an audit
    double scalar;         // the real, where it is the same for all

    __device__ Index index(Index i) const {
        return index_type == WIDE ? static_cast<const Index*>(indices)[i] : static_cast<const int*>(indices)[i];
    }
    __device__ double real(Index i) const {
        return real_type == SCALAR   ? scalar
               : real_type == NARROW ? static_cast<const float*>(reals)[i]
                                     : static_cast<const double*>(reals)[i];
    }
};

static_assert(sizeof(Tree) == 8 * (13 + MOST_LEVELS) && sizeof(Call) == 8 * 13, "every field has 8 bytes");

// Tells the host why an element is refused, unless it has been told of another one that it has not read yet.
__device__ void refuse(const Tree& tree, Index why, Index position, Index index, double value, double bound) {
    if (atomicOr(&tree.status[TOLD], 1)) return;
    tree.report[POSITION] = position;
    tree.report[INDEX] = index;
    tree.report[VALUE] = __double_as_longlong(value);
    tree.report[BOUND] = __double_as_longlong(bound);
    __threadfence_system();  // the host reads the rest after it has seen the first word
    tree.report[WHY] = why;
}

// Consecutive children that one lane holds at a time.
constexpr int HELD = FANOUT == 0 ? 4 : FANOUT < LANES ? 1 : FANOUT > 16 * LANES ? 16 : FANOUT / LANES;

template <typename Value>
struct alignas(16) Pack {
    Value of[16 / sizeof(Value)];
};

// The lanes that share one element.
struct Tile {
    int lane, first;
    unsigned mask;

    __device__ Tile() {
        const int in_warp = threadIdx.x % 32;
        lane = in_warp % LANES;
        first = in_warp - lane;
        mask = (LANES == 32 ? ~0u : (1u << LANES) - 1) << first;
    }
    __device__ unsigned ballot(bool yes) const {
        return LANES == 1 ? yes : __ballot_sync(mask, yes) >> first & (LANES == 32 ? ~0u : (1u << LANES) - 1);
    }
    template <typename Value>
    __device__ Value shuffle(Value value, int source) const {
        return LANES == 1 ? value : __shfl_sync(mask, value, source, LANES);
    }
    __device__ void meet() const {
        if (LANES > 1) __syncwarp(mask);
    }
    // Sum of the lanes before this one.
    __device__ double sum_before(double value) const {
        double through = value;
        // Invariant: through is the sum of this lane and of up to step - 1 lanes before it.
        for (int step = 1; step < LANES; step *= 2) {
            const double other = __shfl_up_sync(mask, through, step, LANES);
            if (lane >= step) through += other;
        }
        const double before = LANES == 1 ? 0.0 : __shfl_up_sync(mask, through, 1, LANES);
        return lane == 0 ? 0.0 : before;
    }
    // Sum over all lanes, the same bits in each.
    __device__ double sum(double value) const {
        // Invariant: lanes that agree modulo 2 * step have the same value, which is the sum over all of them.
        for (int step = LANES / 2; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step, LANES);
        return value;
    }
};

// Children mine and following, as far as the group goes; zeros beyond.
template <typename Value>
__device__ void hold(double (&held)[HELD], const Value* children, Index mine, Index width) {
    constexpr int IN_PACK = 16 / sizeof(Value);
    if constexpr (PACKED && FANOUT && HELD % IN_PACK == 0) {  // such lanes share a group without a remainder
        for (int at = 0; at < HELD; at += IN_PACK) {
            const Pack<Value> pack = *reinterpret_cast<const Pack<Value>*>(children + mine + at);
            for (int k = 0; k < IN_PACK; ++k) held[at + k] = pack.of[k];
        }
    } else {
        for (int k = 0; k < HELD; ++k) held[k] = mine + k < width ? static_cast<double>(children[mine + k]) : 0.0;
    }
}

// The child that the prefix value falls on, and in mass the rest of it within that child: the first positive child whose
// inclusive prefix sum is above mass, or, where rounding pushed mass past them all, the last positive one; 0 in a group
// without any.
template <typename Value>
__device__ Index choose(const Tile& tile, const Value* children, Index width, double& mass) {
    double left = 0.0;  // sum of the chunks passed
    Index last = 0;
    double of_last = 0.0;
    // Invariant: left is the sum of the children before first, none of which was hit; last is the last positive of them.
    for (Index first = 0; first < width; first += LANES * HELD) {
        const Index mine = first + tile.lane * HELD;
        double held[HELD], own = 0.0;
        hold(held, children, mine, width);
        for (int k = 0; k < HELD; ++k) own += held[k];
        const double before = left + tile.sum_before(own);
        double end = before, start = before, of_positive = 0.0;
        int hit = HELD, positive = 0;
        for (int k = 0; k < HELD; ++k) {
            const double begin = end;
            end += held[k];
            if (held[k] > 0.0) {
                positive = k, of_positive = held[k];
                if (hit == HELD && end > mass) hit = k, start = begin;
            }
        }
        if (const unsigned hits = tile.ballot(hit < HELD)) {
            const int winner = __ffs(hits) - 1;
            // Invariant: what remains lies in [0, sum of the child), but for rounding, which the next level guards.
            mass = fmax(mass - tile.shuffle(start, winner), 0.0);
            return first + winner * HELD + tile.shuffle(hit, winner);
        }
        if (const unsigned found = tile.ballot(of_positive > 0.0)) {
            const int holder = 31 - __clz(found);
            last = first + holder * HELD + tile.shuffle(positive, holder);
            of_last = tile.shuffle(of_positive, holder);
        }
        left = tile.shuffle(end, LANES - 1);
    }
    mass = of_last;  // past the end of this child as well
    return last;
}

// The nearest positive leaf, to the left first; -1 where there is none.
__device__ Index nearest_positive(const Tree& tree, Index leaf) {
    for (Index at = leaf; at >= 0; --at)
        if (tree.leaves[at] > LEAF(0)) return at;
    for (Index at = leaf + 1; at < tree.capacity; ++at)
        if (tree.leaves[at] > LEAF(0)) return at;
    return -1;
}

__device__ Index descend(const Tile& tile, const Tree& tree, double mass) {
    const Index width = tree.children();
    Index node = 0;
    // Invariant: 0 <= mass < sum of node, but for rounding.
    for (int level = tree.height - 1; level > 0; --level)
        node = node * width + choose(tile, &tree.sum(level, node * width), width, mass);
    return node * width + choose(tile, tree.leaves + node * width, width, mass);
}

__device__ Index thread() { return Index(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ Index element() { return thread() / LANES; }

// Leaves, -1 where there is none, and their priorities for uniforms in [0, 1), or prefix values in [0, total).
// priorities may be null.
extern "C" __global__ void search(Tree tree, Call call) {
    const Index i = element();
    if (i >= call.batch) return;
    const Tile tile;
    const double total = tree.total();
    const double value = tile.shuffle(call.real(i), 0);  // read once: lanes of two minds would wait for each other
    const bool good = value >= 0.0 && value < (call.uniform ? 1.0 : total);
    Index leaf = -1;
    if (good && (total > 0.0 || DELTA)) {  // deltas may leave a root below 0 above a positive leaf
        leaf = descend(tile, tree, call.uniform ? fmax(fmin(value * total, nextafter(total, -1e308)), 0.0) : value);
        if (tile.lane == 0 && !(tree.leaves[leaf] > LEAF(0))) leaf = nearest_positive(tree, leaf);
    }
    if (tile.lane != 0) return;
    call.found[i] = leaf;
    if (call.priorities) call.priorities[i] = leaf < 0 ? LEAF(0) : tree.leaves[leaf];
    if (good ? leaf < 0 : !call.uniform && !(total > 0.0)) {
        if (tree.report[WHY]) return;  // a bad element says more
        tree.report[TOTAL] = __double_as_longlong(total);
        __threadfence_system();
        tree.report[WHY] = EMPTY;
    } else if (!good && tree.checked) {
        refuse(tree, call.uniform ? BAD_UNIFORM : BAD_MASS, i, -1, value, total);
    }
}

extern "C" __global__ void gather(Tree tree, Call call) {
    const Index i = thread();
    if (i >= call.batch) return;
    const Index index = call.index(i);
    const bool good = index >= 0 && index < tree.capacity;
    call.priorities[i] = good ? tree.leaves[index] : LEAF(0);
    if (!good && tree.checked) refuse(tree, BAD_INDEX, i, index, 0.0, 0.0);
}

// Copies an element of an update, and says whether it is to be refused.
__device__ bool take(const Tree& tree, const Call& call, Index i) {
    const Index index = call.index(i);
    const double priority = call.real(i);
    tree.batch_indices[i] = index;
    tree.batch_values[i] = LEAF(priority) + LEAF(0);  // which makes 0 of -0
    if (!tree.checked) return false;
    const bool outside = index < 0 || index >= tree.capacity;
    if (!outside && priority >= 0.0 && static_cast<double>(LEAF(priority)) <= tree.highest) return false;
    refuse(tree, outside ? BAD_INDEX : BAD_PRIORITY, i, index, priority, tree.highest);
    return true;
}

// The first launch of a large update that is checked: what runs after it writes nothing if an element is refused.
extern "C" __global__ void inspect(Tree tree, Call call) {
    const Index i = thread();
    if (i < call.batch && take(tree, call, i)) atomicOr(&tree.status[REFUSED], 1);
}

__device__ void claim(const Tree& tree, Index i, Index leaf) {
    atomicMax(&tree.claims[leaf], int(i) + 1);
    if (DELTA) return;
    Index node = leaf;
    // Invariant: this element was the first to announce at every node so far.
    for (int level = 1; level <= tree.height; ++level) {
        node = tree.parent(node);
        if (atomicAdd(&tree.pending[tree.start[level] + node], 1) != 0) return;  // announced above by another
    }
}

template <typename Value>
__device__ double sum_of(const Tile& tile, const Value* children, Index width) {
    double own = 0.0;
    for (Index first = 0; first < width; first += LANES * HELD) {
        double held[HELD];
        hold(held, children, first + tile.lane * HELD, width);
        for (int k = 0; k < HELD; ++k) own += held[k];
    }
    return tile.sum(own);
}

__device__ double sum_below(const Tile& tile, const Tree& tree, int level, Index node) {
    const Index width = tree.children();
    return level == 1 ? sum_of(tile, tree.leaves + node * width, width)
                      : sum_of(tile, &tree.sum(level - 1, node * width), width);
}

// Writes the leaf and clears its claim, if this element is the one whose claim stands; change is what the leaf grew by.
__device__ bool write(const Tree& tree, Index i, Index leaf, double& change) {
    if (tree.claims[leaf] != int(i) + 1) return false;
    const LEAF value = tree.batch_values[i];
    change = static_cast<double>(value) - static_cast<double>(tree.leaves[leaf]);
    tree.leaves[leaf] = value;
    tree.claims[leaf] = 0;
    return true;
}

__device__ void settle_by_delta(const Tree& tree, Index i) {
    double change;
    Index node = tree.batch_indices[i];
    if (!write(tree, i, node, change)) return;
    for (int level = 1; level <= tree.height; ++level) {
        node = tree.parent(node);
        atomicAdd(&tree.sum(level, node), change);
    }
}

__device__ void settle_by_sums(const Tile& tile, const Tree& tree, Index i) {
    double change;
    Index node = tree.batch_indices[i];
    if (tile.lane == 0) write(tree, i, node, change);
    // Invariant: this element was the last to finish below every inner node so far, and those are right.
    for (int level = 1; level <= tree.height; ++level) {
        node = tree.parent(node);
        int others = 0;
        if (tile.lane == 0) {
            __threadfence();  // what was written below is seen by whoever finds this element gone
            others = atomicSub(&tree.pending[tree.start[level] + node], 1) - 1;
            if (others == 0) __threadfence();
        }
        if (tile.shuffle(others, 0) != 0) return;
        tile.meet();  // a shuffle orders no memory: what its first lane has seen, all have from here on
        const double total = sum_below(tile, tree, level, node);
        if (tile.lane == 0) tree.sum(level, node) = total;
    }
}

extern "C" __global__ void claim_leaves(Tree tree, Call call) {
    const Index i = thread();
    if (i >= call.batch || (tree.checked && tree.status[REFUSED])) return;
    if (!tree.checked) take(tree, call, i);
    claim(tree, i, tree.batch_indices[i]);
}

// By one thread an element under DELTA, else by a tile.
__device__ void settle(const Tree& tree, Index batch) {
    const Index i = DELTA ? thread() : element();
    if (i >= batch || (tree.checked && tree.status[REFUSED])) return;
    if constexpr (DELTA) settle_by_delta(tree, i);
    else settle_by_sums(Tile(), tree, i);
}

// The last launch of a large update: its last block makes the next update one that is not refused.
extern "C" __global__ void settle_leaves(Tree tree, Call call) {
    settle(tree, call.batch);
    if (!tree.checked) return;
    __syncthreads();
    if (threadIdx.x != 0 || atomicAdd(&tree.status[BLOCKS], 1) != call.blocks - 1) return;
    tree.status[BLOCKS] = tree.status[REFUSED] = 0;
}

// Both phases, and the inspection before them, in one launch of one block.
extern "C" __global__ void __launch_bounds__(512) update_fused(Tree tree, Call call) {
    bool bad = false;
    for (Index i = threadIdx.x; i < call.batch; i += blockDim.x) bad = take(tree, call, i) || bad;
    if (__syncthreads_or(bad)) return;
    for (Index i = threadIdx.x; i < call.batch; i += blockDim.x) claim(tree, i, tree.batch_indices[i]);
    __syncthreads();
    if constexpr (DELTA) {
        for (Index i = threadIdx.x; i < call.batch; i += blockDim.x) settle_by_delta(tree, i);
    } else {
        const Tile tile;
        for (Index i = threadIdx.x / LANES; i < call.batch; i += blockDim.x / LANES) settle_by_sums(tile, tree, i);
    }
}

// Compares the nodes of a level with the sums of their children, and puts those in their place if repair is not 0.
extern "C" __global__ void audit(Tree tree, Call call) {
    const Index node = element();
    if (node >= call.batch) return;
    const Tile tile;
    const double total = sum_below(tile, tree, call.level, node);
    if (tile.lane != 0) return;
    const double off = fabs(tree.sum(call.level, node) - total);
    atomicMax(call.worst, static_cast<unsigned long long>(__double_as_longlong(off)));
    if (call.repair) tree.sum(call.level, node) = total;
}
