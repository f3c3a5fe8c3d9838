// A host of the RMM: reads requests from the standard input, hands them over in batches, and prints the answers.
//
//   update N leaf value leaf value ...   N leaves and their new values           prints nothing
//   sample N prefix prefix ...           N prefix values below the total         prints N lines: leaf value
//   get N leaf leaf ...                  N leaves                                prints N lines: leaf value
//   total                                                                        prints the sum of all leaves
//
// Numbers are whole: a priority p is round(p 2^f) for f bits of fraction.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "rmm.hpp"

namespace {

std::uint64_t total = 0;

bool complain(const std::string& what) {
  std::cerr << "error: " << what << "\n";
  return false;
}

bool refuse(const std::string& what, std::uint64_t value, const std::string& bound) {
  return complain(what + " " + std::to_string(value) + " must be below " + bound);
}

// Checks all requests before the kernel sees any. Returns false, with a line of why, where a number is out of bounds.
bool check(Kind kind, const std::vector<std::uint64_t>& asked, const std::vector<std::uint64_t>& values) {
  for (std::uint64_t word : asked) {
    if (kind == SAMPLE && word >= total) return refuse("prefix value", word, "the total, " + std::to_string(total));
    if (kind != SAMPLE && word >= CAPACITY) return refuse("leaf", word, std::to_string(CAPACITY));
  }
  for (std::uint64_t value : values)
    if (LEAF_BITS < 64 && value >> LEAF_BITS) return refuse("value", value, "2^" + std::to_string(LEAF_BITS));
  return true;
}

bool serve(Kind kind, const std::vector<std::uint64_t>& asked, const std::vector<std::uint64_t>& values) {
  if (!check(kind, asked, values)) return false;
  std::vector<std::uint64_t> leaves(BATCH), priorities(BATCH);
  for (std::size_t first = 0; first < asked.size(); first += BATCH) {
    const unsigned count = unsigned(std::min<std::size_t>(BATCH, asked.size() - first));
    const std::uint64_t* written = kind == UPDATE ? values.data() + first : nullptr;
    total = rmm(kind, count, asked.data() + first, written, leaves.data(), priorities.data());
    for (unsigned place = 0; kind != UPDATE && place < count; ++place)
      std::cout << leaves[place] << " " << priorities[place] << "\n";
  }
  return true;
}

bool run(std::istream& lines) {
  std::string word;
  while (lines >> word) {
    std::vector<std::uint64_t> asked, values;
    std::size_t count = 0;
    if (word == "total") {
      std::cout << total << "\n";
      continue;
    }
    const bool is_update = word == "update";
    if (!is_update && word != "sample" && word != "get")
      return complain("no request '" + word + "'; there are update, sample, get and total");
    lines >> count;
    for (std::size_t place = 0; place < count && lines; ++place) {
      std::uint64_t leaf = 0, value = 0;
      lines >> leaf;
      if (is_update) lines >> value;
      asked.push_back(leaf);
      if (is_update) values.push_back(value);
    }
    if (!lines) return complain(word + " wants a number of requests, and as many whole numbers from 0 on");
    if (!serve(is_update ? UPDATE : word == "get" ? GET : SAMPLE, asked, values)) return false;
  }
  return true;
}

}  // namespace

int main() { return run(std::cin) ? 0 : 2; }
