#include "profiler/calibrate/kernel_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace stowage::calibrate {
namespace {

constexpr double kBlockRows = 128;

double number(std::int64_t value) { return static_cast<double>(value); }

/// Bytes of a matrix in bf16.
double matrix(std::int64_t rows, std::int64_t columns) { return 2 * number(rows) * number(columns); }

KernelWork gemm_work(const KernelCase& kernel) {
    const double input = matrix(kernel.rows, kernel.depth);
    const double weight = matrix(kernel.columns, kernel.depth);
    const double output = matrix(kernel.rows, kernel.columns);
    KernelWork work;
    work.flops = 2 * number(kernel.rows) * number(kernel.columns) * number(kernel.depth);
    switch (kernel.kind) {
        case KernelKind::linear_input_gradient:
            work.operand_bytes = output + weight;
            work.result_bytes = input;
            break;
        case KernelKind::linear_weight_gradient:
            work.operand_bytes = output + input;
            work.result_bytes = 2 * weight;
            break;
        case KernelKind::fp8_forward:
            work.operand_bytes = (input + weight) / 2;
            work.result_bytes = output;
            break;
        default: work.operand_bytes = input + weight; work.result_bytes = output;
    }
    return work;
}

/// As planner/layers/stowage/attention_half.cpp counts it, with as many groups as heads.
KernelWork attention_work(const KernelCase& kernel) {
    const double key = number(kernel.head_size);
    const double value = number(kernel.value_size);
    const double packed = matrix(kernel.rows, kernel.heads) * (2 * key + value);
    const double output = matrix(kernel.rows, kernel.heads) * value;
    KernelWork work;
    work.rows = number(kernel.rows) * number(kernel.heads);
    work.keys = number(kernel.sequence) / 2;
    work.longest = number(kernel.sequence);
    work.operand_bytes = packed + output + 4 * work.rows;
    const double pairs = 2 * work.rows * work.keys;
    if (kernel.kind == KernelKind::attention_forward) {
        work.flops = pairs * (key + value);
        return work;
    }
    work.flops = pairs * (3 * key + 2 * value);
    work.operand_bytes += packed + output;
    work.between_bytes = 2 * pairs;
    return work;
}

double memory_bytes(const KernelCase& kernel) {
    const double plain = matrix(kernel.rows, kernel.columns);
    switch (kernel.kind) {
        case KernelKind::norm_forward: return 2 * plain;
        case KernelKind::norm_backward: return 3 * plain;
        case KernelKind::activation_forward: return 3 * plain;
        case KernelKind::activation_backward: return 6 * plain;
        case KernelKind::memory_copy: return 2 * number(kernel.rows);
        default: return 4 * number(kernel.rows);
    }
}

double stream_us(double bytes, const KernelRates& rates) { return bytes / (rates.gb_per_s * 1e3); }

double lengthening(const KernelWork& work, const types::AttentionLoss& loss) {
    const double unevenness = std::clamp(work.longest / work.keys - 1, 0.0, 1.0);
    return (1 + loss.start_keys / work.keys) * (1 + loss.tail_blocks * unevenness * kBlockRows / work.rows);
}

}  // namespace

std::string name_of(KernelKind kind) {
    constexpr std::array<std::string_view, 12> kNames{
        "linear forward",      "linear input gradient", "linear weight gradient",
        "fp8 forward",         "attention forward",     "attention backward",
        "norm forward",        "norm backward",         "activation forward",
        "activation backward", "memory copy",           "strided copy"};
    return std::string(kNames.at(static_cast<std::size_t>(kind)));
}

std::string name_of(const KernelCase& kernel) {
    const std::string kind = name_of(kernel.kind);
    if (is_attention(kernel.kind)) {
        const std::string value = kernel.value_size == kernel.head_size ? "" : fmt::format("/{}", kernel.value_size);
        return fmt::format("{} {} heads of {}{}, {} x {} tokens", kind, kernel.heads, kernel.head_size, value,
                           kernel.rows / kernel.sequence, kernel.sequence);
    }
    if (kernel.depth > 0) return fmt::format("{} {} x {} x {}", kind, kernel.rows, kernel.depth, kernel.columns);
    if (kernel.columns > 0) return fmt::format("{} {} x {}", kind, kernel.rows, kernel.columns);
    return fmt::format("{} of {}", kind, kernel.rows);
}

KernelCase linear(KernelKind kind, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    return {.kind = kind, .rows = rows, .columns = columns, .depth = depth};
}

KernelCase attention(KernelKind kind, std::int64_t rows, std::int64_t sequence, std::int64_t heads,
                     std::int64_t head_size, std::int64_t value_size) {
    return {.kind = kind,
            .rows = rows,
            .sequence = sequence,
            .heads = heads,
            .head_size = head_size,
            .value_size = value_size};
}

KernelCase rows_of(KernelKind kind, std::int64_t rows, std::int64_t columns) {
    return {.kind = kind, .rows = rows, .columns = columns};
}

KernelWork work_of(const KernelCase& kernel) {
    if (is_attention(kernel.kind)) return attention_work(kernel);
    if (kernel.depth > 0) return gemm_work(kernel);
    KernelWork work;
    work.operand_bytes = memory_bytes(kernel);
    return work;
}

double gemm_us(const KernelWork& work, const KernelRates& rates) {
    const double multiplying = work.flops / (rates.tflop_per_s * 1e6);
    return std::max(multiplying, stream_us(work.operand_bytes, rates)) + stream_us(work.result_bytes, rates) +
           rates.overhead_us + rates.ramp_us;
}

double attention_us(const KernelWork& work, const KernelRates& rates) {
    const double multiplying = work.flops / (rates.tflop_per_s * 1e6) * lengthening(work, rates.loss);
    return std::max(multiplying, stream_us(work.operand_bytes, rates)) + stream_us(work.between_bytes, rates) +
           rates.overhead_us;
}

double memory_us(const KernelWork& work, const KernelRates& rates) {
    return stream_us(work.operand_bytes, rates) + rates.overhead_us;
}

}  // namespace stowage::calibrate
