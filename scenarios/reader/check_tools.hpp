#pragma once

// What the checks across values share. A check whose values could not be read is passed over, so that one mistake is
// reported once.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "scenarios/reader/read_fields.hpp"

namespace stowage::reader {

using Paths = std::initializer_list<std::string_view>;

inline constexpr std::string_view kTensor = "parallel.tensor_model_parallel_size";
inline constexpr std::string_view kPipeline = "parallel.pipeline_model_parallel_size";
inline constexpr std::string_view kVirtual = "parallel.num_virtual_stages_per_pipeline_rank";
inline constexpr std::string_view kContext = "parallel.context_parallel_size";
inline constexpr std::string_view kExpert = "parallel.expert_model_parallel_size";
inline constexpr std::string_view kExpertTensor = "parallel.expert_tensor_parallel_size";
inline constexpr std::string_view kData = "parallel.data_parallel_size";
inline constexpr std::string_view kSequence = "parallel.sequence_parallel";

/// a * b, or the largest integer if that is less; both at least 0.
std::int64_t product(std::int64_t a, std::int64_t b);
std::int64_t product(std::initializer_list<std::int64_t> factors);

inline std::string number(std::int64_t value) { return std::to_string(value); }

/// Whether the value at `path`, or a group around it, could not be read.
bool unread(const Gathered& gathered, std::string_view path);
bool all_read(const Gathered& gathered, Paths paths);

void report(Gathered& gathered, std::string_view path, std::string message, std::string hint = {});

/// `value` at `path` must be a multiple of `divisor`, which is called `name`.
void require_multiple(Gathered& gathered, std::string_view path, const std::string& what, std::int64_t value,
                      const std::string& name, std::int64_t divisor);

/// Reports at `path`, if it was read, that what it says needs `other` when `missing`.
void require(Gathered& gathered, std::string_view path, bool missing, const std::string& other);

}  // namespace stowage::reader
