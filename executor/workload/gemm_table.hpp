#pragma once

// Which algorithm of the GEMM library each matrix product uses: chosen once by measurement, kept in a file. Two runs
// are compared bit by bit only with the same table, since another algorithm adds in another order.
//
// Tested by: tests/executor/workload/gemm_table_test.cpp (file), gemm_gpu_test.cpp (measured, saved, used again).

#include <array>
#include <filesystem>
#include <map>
#include <string>

#include "executor/workload/gemm_key.hpp"

namespace stowage::executor {

/// One choice. `raw` is what the library takes; what follows it says the same to a reader.
struct GemmAlgorithm {
    std::array<std::uint64_t, 8> raw{};
    std::int64_t workspace_bytes = 0;
    std::int32_t id = 0;
    std::uint32_t tile = 0;
    std::uint32_t stages = 0;
    std::int32_t split_k = 0;
    std::uint32_t reduction = 0;
    std::uint32_t swizzle = 0;
    std::uint32_t custom = 0;
    std::uint32_t inner_shape = 0;
    std::uint32_t cluster = 0;
    bool one_by_one = false;  ///< several experts' products: a launch for each, otherwise one for all
    double microseconds = 0;  ///< median when it was chosen, of all experts
    friend bool operator==(const GemmAlgorithm&, const GemmAlgorithm&) = default;
};

/// What a table holds for, and nothing else.
struct GemmPlatform {
    std::string device;  ///< the driver's name of it
    std::uint64_t cublaslt_version = 0;
    friend bool operator==(const GemmPlatform&, const GemmPlatform&) = default;
};

struct GemmTable {
    GemmPlatform platform;
    std::map<GemmKey, GemmAlgorithm> entries;
    friend bool operator==(const GemmTable&, const GemmTable&) = default;
};

/// JSON with the schema `stowage/gemm-table/1`.
std::string to_json(const GemmTable& table);
/// `name` is what messages call it. Throws: types::InputError for what is not such a table.
GemmTable gemm_table_from_json(const std::string& text, const std::string& name);

/// Throws: types::InputError if the table was measured on another device or with another version of the library.
void require_same_platform(const GemmTable& table, const GemmPlatform& here, const std::string& name);

/// Throws: types::InputError if the file cannot be read or is no table.
GemmTable read_gemm_table(const std::filesystem::path& file);
/// Written under another name and then renamed, so that there is never half a file. Throws: types::InputError.
void write_gemm_table(const std::filesystem::path& file, const GemmTable& table);

}  // namespace stowage::executor
