// A replay management module (RMM): a K-ary sum tree in S banks, each a pipeline with a memory for every level.
//
// Compiled by a vendor's tools it takes their integers of any width and their streams; by any other compiler of C++17 it
// takes the ones below, with which the same text is a simulation: equal leaves, equal sums, but no clock. It states the
// function, not the cycles that the model counts: a bank looks at every request, and memories are not bound to kinds.
#pragma once

#include <cstdint>

#include "parameters.hpp"

#if __has_include(<ap_int.h>) && __has_include(<hls_stream.h>)
#include <ap_int.h>
#include <hls_stream.h>
template <unsigned Bits> using Word = ap_uint<Bits>;
template <typename Item> using Stream = hls::stream<Item>;
#else
#include <deque>
template <unsigned Bits> using Word = std::uint64_t;
template <typename Item> class Stream {
 public:
  void write(const Item& item) { items_.push_back(item); }
  Item read() {
    Item item = items_.front();
    items_.pop_front();
    return item;
  }
  bool empty() const { return items_.empty(); }

 private:
  std::deque<Item> items_;
};
#endif

enum Kind : unsigned { SAMPLE, UPDATE, GET };

// Serve `count` requests of one kind, at most BATCH, in order.
//
//   SAMPLE  asked: a prefix value below the sum of all leaves;  answers: the leaf that it falls on, and its value
//   UPDATE  asked: a leaf below CAPACITY, values: its new value below 2^LEAF_BITS;  the last of equal leaves wins
//   GET     asked: a leaf;  answers: the leaf, and its value
//
// Returns the sum of all leaves.
extern "C" std::uint64_t rmm(unsigned kind, unsigned count, const std::uint64_t* asked, const std::uint64_t* values,
                             std::uint64_t* leaves, std::uint64_t* priorities);
