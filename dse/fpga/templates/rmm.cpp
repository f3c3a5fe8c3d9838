#include "rmm.hpp"

namespace {

constexpr unsigned MASS_BITS = 64;  // of a prefix value over all banks

// The memory of a level below the root: the groups of K siblings of every bank. Level 0 holds the leaves.
template <unsigned Level> Word<WIDTHS[Level]> nodes[BANKS][SIZES[Level + 1]][FANOUT];
Word<WIDTHS[LEVELS]> root[BANKS];

struct Request {
  unsigned tag;   // its place in the batch
  unsigned bank;  // where it goes
  Word<MASS_BITS> asked;
  Word<LEAF_BITS> value;
};

struct Row {  // what comes in a cycle: a lane for each bank, the last row with fewer
  unsigned lanes;
  Request lane[BANKS];
};

struct Answer {
  unsigned tag;
  std::uint64_t leaf, priority;
};

std::uint64_t leaf_of(unsigned bank, unsigned within) {
  return INTERLEAVED ? std::uint64_t(within) * BANKS + bank : std::uint64_t(bank) * BANK_CAPACITY + within;
}

unsigned bank_of(std::uint64_t leaf) { return unsigned(INTERLEAVED ? leaf % BANKS : leaf / BANK_CAPACITY); }

unsigned within(std::uint64_t leaf) { return unsigned(INTERLEAVED ? leaf / BANKS : leaf % BANK_CAPACITY); }

// A sampler's stages, from the level below the root to the leaves.
template <unsigned Below> struct Descent {
  static constexpr unsigned LEVEL = Below - 1;
  static Answer run(unsigned bank, unsigned node, Word<MASS_BITS> rest) {
#pragma HLS INLINE
    Word<MASS_BITS> before = 0, inside = 0;
    Word<WIDTHS[LEVEL]> chosen = 0;
    unsigned child = 0;
    bool found = false;
    // Invariant: `before` is the sum of the siblings looked at; the first whose inclusive sum is above `rest` is chosen.
    for (unsigned sibling = 0; sibling < FANOUT; ++sibling) {
#pragma HLS UNROLL factor = SIBLINGS_AT_ONCE
      const Word<WIDTHS[LEVEL]> value = nodes<LEVEL>[bank][node][sibling];
      if (!found && before + value > rest) {
        found = true;
        child = sibling;
        inside = before;
        chosen = value;
      }
      before += value;
    }
    if constexpr (LEVEL == 0)
      return {0, leaf_of(bank, node * FANOUT + child), std::uint64_t(chosen)};
    else
      return Descent<LEVEL>::run(bank, node * FANOUT + child, rest - inside);
  }
};

// An updater's stages above the leaves: each adds the change to the sum on its level. A negative change wraps around.
template <unsigned Level> void add_change(unsigned bank, unsigned node, Word<MASS_BITS> change) {
#pragma HLS INLINE
  if constexpr (Level < LEVELS) {
    nodes<Level>[bank][node / FANOUT][node % FANOUT] += change;
    add_change<Level + 1>(bank, node / FANOUT, change);
  } else {
    root[bank] += change;
  }
}

Answer serve(unsigned kind, const Request& request) {
#pragma HLS INLINE
  const unsigned bank = request.bank;
  if (kind == SAMPLE) return Descent<LEVELS>::run(bank, 0, request.asked);
  const std::uint64_t leaf = std::uint64_t(request.asked);
  const unsigned node = within(leaf);
  const std::uint64_t old = std::uint64_t(nodes<0>[bank][node / FANOUT][node % FANOUT]);
  if (kind == UPDATE) add_change<0>(bank, node, Word<MASS_BITS>(std::uint64_t(request.value) - old));
  return {0, leaf, old};
}

// Rows of the batch to every bank: a queue each, in which requests keep their order.
void dispatch(unsigned kind, unsigned count, const std::uint64_t* asked, const std::uint64_t* values,
              Stream<Row> (&queues)[BANKS]) {
  std::uint64_t starts[BANKS];  // the prefix value at which each bank begins
  std::uint64_t sum = 0;
  for (unsigned bank = 0; bank < BANKS; ++bank) {
#pragma HLS UNROLL
    starts[bank] = sum;
    sum += std::uint64_t(root[bank]);
  }
  for (unsigned first = 0; first < count; first += BANKS) {
#pragma HLS PIPELINE II = 1
    Row row = {};
    row.lanes = count - first < BANKS ? count - first : BANKS;
    for (unsigned lane = 0; lane < BANKS; ++lane) {
#pragma HLS UNROLL
      if (lane >= row.lanes) continue;
      Request& request = row.lane[lane];
      const std::uint64_t word = asked[first + lane];
      request.tag = first + lane;
      request.bank = kind == SAMPLE ? 0 : bank_of(word);
      request.asked = word;
      request.value = kind == UPDATE ? values[first + lane] : 0;
      // A prefix value is of the last bank that begins at or before it.
      for (unsigned bank = 1; kind == SAMPLE && bank < BANKS; ++bank) {
#pragma HLS UNROLL
        if (word >= starts[bank]) {
          request.bank = bank;
          request.asked = word - starts[bank];
        }
      }
    }
    for (unsigned bank = 0; bank < BANKS; ++bank) {
#pragma HLS UNROLL
      queues[bank].write(row);
    }
  }
}

void serve_bank(unsigned bank, unsigned kind, unsigned rows, Stream<Row>& queue, Stream<Answer>& answers) {
  for (unsigned taken = 0; taken < rows; ++taken) {
    const Row row = queue.read();
    for (unsigned lane = 0; lane < row.lanes; ++lane) {
#pragma HLS PIPELINE II = INTERVAL
      if (row.lane[lane].bank != bank) continue;
      Answer answer = serve(kind, row.lane[lane]);
      answer.tag = row.lane[lane].tag;
      answers.write(answer);
    }
  }
}

void collect(unsigned count, Stream<Answer> (&answers)[BANKS], std::uint64_t* leaves, std::uint64_t* priorities) {
  for (unsigned taken = 0, bank = 0; taken < count; bank = bank + 1 == BANKS ? 0 : bank + 1) {
    if (answers[bank].empty()) continue;
    const Answer answer = answers[bank].read();
    leaves[answer.tag] = answer.leaf;
    priorities[answer.tag] = answer.priority;
    ++taken;
  }
}

}  // namespace

extern "C" std::uint64_t rmm(unsigned kind, unsigned count, const std::uint64_t* asked, const std::uint64_t* values,
                             std::uint64_t* leaves, std::uint64_t* priorities) {
#pragma HLS INTERFACE m_axi port = asked depth = BATCH
#pragma HLS INTERFACE m_axi port = values depth = BATCH
#pragma HLS INTERFACE m_axi port = leaves depth = BATCH
#pragma HLS INTERFACE m_axi port = priorities depth = BATCH
#pragma HLS ARRAY_PARTITION variable = root complete
  static Stream<Row> queues[BANKS];
  static Stream<Answer> answers[BANKS];
#pragma HLS STREAM variable = queues depth = QUEUE_ROWS
#pragma HLS STREAM variable = answers depth = QUEUE
  {
#pragma HLS DATAFLOW
    dispatch(kind, count, asked, values, queues);
    for (unsigned bank = 0; bank < BANKS; ++bank) {
#pragma HLS UNROLL
      serve_bank(bank, kind, (count + BANKS - 1) / BANKS, queues[bank], answers[bank]);
    }
    collect(count, answers, leaves, priorities);
  }
  std::uint64_t total = 0;
  for (unsigned bank = 0; bank < BANKS; ++bank) {
#pragma HLS UNROLL
    total += std::uint64_t(root[bank]);
  }
  return total;
}
