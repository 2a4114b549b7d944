#pragma once

#include <cstdint>

#include "scenarios/types/enum_names.hpp"

namespace stowage::types {

/// Element types of device and pinned tensors.
enum class DataType : std::uint8_t { bf16, fp16, fp32, fp8, int64, int32, uint8, boolean };

template <>
struct EnumNames<DataType> {
    static constexpr std::array<std::pair<DataType, std::string_view>, 8> values{{
        {DataType::bf16, "bf16"},
        {DataType::fp16, "fp16"},
        {DataType::fp32, "fp32"},
        {DataType::fp8, "fp8"},
        {DataType::int64, "int64"},
        {DataType::int32, "int32"},
        {DataType::uint8, "uint8"},
        {DataType::boolean, "bool"},
    }};
};

/// Bytes of one element.
constexpr std::int64_t size_of(DataType type) {
    switch (type) {
        case DataType::bf16:
        case DataType::fp16: return 2;
        case DataType::fp32:
        case DataType::int32: return 4;
        case DataType::int64: return 8;
        case DataType::fp8:
        case DataType::uint8:
        case DataType::boolean: return 1;
    }
    return 0;
}

}  // namespace stowage::types
