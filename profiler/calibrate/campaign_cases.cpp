#include "profiler/calibrate/campaign.hpp"

namespace stowage::calibrate {
namespace {

constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kFfn = 14336;
constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kHeadSize = 128;

using types::operator""_KiB;
using types::operator""_MiB;
using types::operator""_GiB;

/// The three products of a linear layer.
void add_linear(std::vector<KernelCase>& cases, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
    for (const KernelKind kind :
         {KernelKind::linear_forward, KernelKind::linear_input_gradient, KernelKind::linear_weight_gradient})
        cases.push_back(linear(kind, rows, columns, depth));
}

void add_attention(std::vector<KernelCase>& cases, std::int64_t sequence, std::int64_t heads, std::int64_t head_size,
                   std::int64_t value_size) {
    for (const KernelKind kind : {KernelKind::attention_forward, KernelKind::attention_backward})
        cases.push_back(attention(kind, sequence, sequence, heads, head_size, value_size));
}

KernelCase mix_attention(KernelKind kind) { return attention(kind, kTokens, kTokens, kHeads, kHeadSize, kHeadSize); }

}  // namespace

std::vector<KernelCase> fitted_kernels() {
    std::vector<KernelCase> cases;
    add_linear(cases, kTokens, 3 * kHidden, kHidden);
    add_linear(cases, kTokens, kHidden, kHidden);
    add_linear(cases, kTokens, 2 * kFfn, kHidden);
    add_linear(cases, 2048, 2048, 2048);
    cases.push_back(linear(KernelKind::linear_forward, kTokens, kHidden, kFfn));
    cases.push_back(linear(KernelKind::linear_forward, kTokens, 1024, kHidden));
    cases.push_back(linear(KernelKind::linear_forward, 8192, 8192, 1024));
    cases.push_back(linear(KernelKind::linear_weight_gradient, 2048, 6144, 2048));
    for (const std::int64_t columns : {kHidden, 3 * kHidden, 2 * kFfn})
        cases.push_back(linear(KernelKind::fp8_forward, kTokens, columns, kHidden));
    add_attention(cases, kTokens, 8, kHeadSize, kHeadSize);
    add_attention(cases, kTokens, kHeads, kHeadSize, kHeadSize);
    add_attention(cases, 2048, kHeads, kHeadSize, kHeadSize);
    add_attention(cases, 8192, 16, kHeadSize, kHeadSize);
    add_attention(cases, 16384, 4, kHeadSize, kHeadSize);
    add_attention(cases, kTokens, kHeads, 64, 64);
    add_attention(cases, kTokens, 16, 192, kHeadSize);
    add_attention(cases, kTokens, 16, 256, 256);
    cases.push_back(rows_of(KernelKind::memory_copy, (512_MiB).count));
    cases.push_back(rows_of(KernelKind::strided_copy, (16_MiB).count));
    return cases;
}

std::vector<KernelCase> mix_kernels() {
    std::vector<KernelCase> cases;
    const auto forward = [&](std::int64_t columns, std::int64_t depth) {
        cases.push_back(linear(KernelKind::linear_forward, kTokens, columns, depth));
    };
    const auto backward = [&](std::int64_t columns, std::int64_t depth) {
        cases.push_back(linear(KernelKind::linear_input_gradient, kTokens, columns, depth));
        cases.push_back(linear(KernelKind::linear_weight_gradient, kTokens, columns, depth));
    };
    cases.push_back(rows_of(KernelKind::norm_forward, kTokens, kHidden));
    forward(3 * kHidden, kHidden);
    cases.push_back(mix_attention(KernelKind::attention_forward));
    forward(kHidden, kHidden);
    cases.push_back(rows_of(KernelKind::norm_forward, kTokens, kHidden));
    forward(2 * kFfn, kHidden);
    cases.push_back(rows_of(KernelKind::activation_forward, kTokens, kFfn));
    forward(kHidden, kFfn);
    backward(kHidden, kFfn);
    cases.push_back(rows_of(KernelKind::activation_backward, kTokens, kFfn));
    backward(2 * kFfn, kHidden);
    cases.push_back(rows_of(KernelKind::norm_backward, kTokens, kHidden));
    backward(kHidden, kHidden);
    cases.push_back(mix_attention(KernelKind::attention_backward));
    backward(3 * kHidden, kHidden);
    cases.push_back(rows_of(KernelKind::norm_backward, kTokens, kHidden));
    return cases;
}

std::vector<double> mix_duties() { return {1, 0.75, 0.5}; }

std::vector<BesideCase> beside_kernels() {
    using types::KernelClass;
    return {{KernelClass::gemm, linear(KernelKind::linear_forward, kTokens, 3 * kHidden, kHidden)},
            {KernelClass::gemm, linear(KernelKind::linear_weight_gradient, kTokens, 3 * kHidden, kHidden)},
            {KernelClass::attention, mix_attention(KernelKind::attention_forward)},
            {KernelClass::attention, mix_attention(KernelKind::attention_backward)},
            {KernelClass::memory_bound, rows_of(KernelKind::norm_forward, kTokens, kHidden)},
            {KernelClass::memory_bound, rows_of(KernelKind::activation_backward, kTokens, kFfn)}};
}

std::vector<Bytes> copy_sizes() { return {64_KiB, 256_KiB, 1_MiB, 4_MiB, 16_MiB, 64_MiB, 256_MiB, 1_GiB}; }

}  // namespace stowage::calibrate
