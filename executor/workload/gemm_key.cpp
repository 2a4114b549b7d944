#include "executor/workload/gemm_key.hpp"

#include <fmt/format.h>

#include "scenarios/types/check.hpp"

namespace stowage::executor {

using layers::Call;
using layers::CallSizes;

namespace {

GemmKey forward_key(const CallSizes& sizes) {
    GemmKey key;
    key.transpose_a = true;
    key.m = sizes.columns;
    key.n = sizes.rows;
    key.k = sizes.depth;
    key.lda = sizes.depth;
    key.ldb = sizes.depth;
    key.ldd = sizes.columns;
    key.bias = sizes.has_bias;
    key.add = sizes.has_addend;
    if (sizes.fp32_result) key.output = types::DataType::fp32;
    return key;
}

GemmKey input_gradient_key(const CallSizes& sizes) {
    GemmKey key;
    key.m = sizes.depth;
    key.n = sizes.rows;
    key.k = sizes.columns;
    key.lda = sizes.depth;
    key.ldb = sizes.columns;
    key.ldd = sizes.depth;
    return key;
}

GemmKey weight_gradient_key(const CallSizes& sizes) {
    GemmKey key;
    key.transpose_b = true;
    key.m = sizes.depth;
    key.n = sizes.columns;
    key.k = sizes.rows;
    key.lda = sizes.depth;
    key.ldb = sizes.columns;
    key.ldd = sizes.depth;
    key.output = sizes.gradient_type;
    key.add = true;
    return key;
}

/// The same result from FP8 copies that lie so that the library sums along their columns.
GemmKey fp8_key(GemmKey key, bool gradient) {
    key.factors = gradient ? GemmFactors::e4m3_and_e5m2 : GemmFactors::e4m3;
    key.transpose_a = true;
    key.transpose_b = false;
    key.lda = key.k;
    key.ldb = key.k;
    return key;
}

/// a, weight, [bias], [addend], y, workspace; in FP8 each factor has its scales behind it
GemmOperands forward_operands(const CallSizes& sizes, bool fp8) {
    GemmOperands operands;
    std::size_t next = 0;
    operands.b = next++;
    if (fp8) operands.b_scales = next++;
    operands.a = next++;
    if (fp8) operands.a_scales = next++;
    if (sizes.has_bias) operands.bias = next++;
    if (sizes.has_addend) operands.c = next++;
    operands.d = next++;
    if (!sizes.has_addend) operands.c = operands.d;
    operands.workspace = next;
    return operands;
}

/// What a grouped call does for each expert, and one in FP8 with other numbers; a linear one as it is.
Call linear_of(Call call) {
    switch (call) {
        case Call::grouped_linear_forward:
        case Call::fp8_linear_forward: return Call::linear_forward;
        case Call::grouped_linear_input_gradient:
        case Call::fp8_linear_input_gradient: return Call::linear_input_gradient;
        case Call::grouped_linear_weight_gradient:
        case Call::fp8_linear_weight_gradient: return Call::linear_weight_gradient;
        default: return call;
    }
}

GemmKey linear_key(Call call, const CallSizes& sizes) {
    if (call == Call::linear_forward) return forward_key(sizes);
    return call == Call::linear_input_gradient ? input_gradient_key(sizes) : weight_gradient_key(sizes);
}

}  // namespace

bool is_grouped_gemm(Call call) {
    return call == Call::grouped_linear_forward || call == Call::grouped_linear_input_gradient ||
           call == Call::grouped_linear_weight_gradient;
}

bool is_fp8_gemm(Call call) {
    return call == Call::fp8_linear_forward || call == Call::fp8_linear_input_gradient ||
           call == Call::fp8_linear_weight_gradient;
}

bool is_gemm(Call call) {
    return is_grouped_gemm(call) || is_fp8_gemm(call) || call == Call::linear_forward ||
           call == Call::linear_input_gradient || call == Call::linear_weight_gradient;
}

std::vector<GemmKey> gemm_keys(Call call, const CallSizes& sizes) {
    STOWAGE_CHECK(is_gemm(call), "only linear layers are matrix products");
    STOWAGE_CHECK(sizes.rows > 0 && sizes.columns > 0 && sizes.depth > 0, "a linear layer with an empty matrix");
    if (is_fp8_gemm(call)) return {fp8_key(linear_key(linear_of(call), sizes), call != Call::fp8_linear_forward)};
    if (!is_grouped_gemm(call)) return {linear_key(call, sizes)};
    STOWAGE_CHECK(sizes.experts > 0, "a grouped layer of no experts");
    STOWAGE_CHECK(!sizes.has_bias && !sizes.has_addend, "grouped layers add nothing to their products");
    CallSizes one = sizes;
    one.rows = sizes.rows / sizes.experts;
    std::vector<GemmKey> keys;
    if (one.rows > 0) keys.push_back(linear_key(linear_of(call), one));
    if (sizes.rows % sizes.experts == 0) {
        keys.front().experts = sizes.experts;
    } else {
        ++one.rows;
        keys.push_back(linear_key(linear_of(call), one));
    }
    return keys;
}

GemmKey gemm_key(Call call, const CallSizes& sizes) {
    const std::vector<GemmKey> keys = gemm_keys(call, sizes);
    STOWAGE_CHECK(keys.size() == 1, "one key for experts with different rows");
    return keys.front();
}

GemmKey of_one_expert(const GemmKey& key) {
    GemmKey one = key;
    one.experts = 1;
    return one;
}

GemmOperands gemm_operands(Call call, const CallSizes& sizes) {
    STOWAGE_CHECK(is_gemm(call), "only linear layers are matrix products");
    const bool fp8 = is_fp8_gemm(call);
    if (linear_of(call) == Call::linear_forward) return forward_operands(sizes, fp8);
    GemmOperands operands;
    if (fp8) return {.a = 2, .b = 0, .c = 4, .d = 4, .a_scales = 3, .b_scales = 1, .workspace = 5};
    operands.a = 1;  // weight, or the layer's input
    operands.b = 0;  // dy
    operands.c = 2;
    operands.d = 2;
    operands.workspace = 3;
    return operands;
}

std::string to_string(const GemmKey& key) {
    return fmt::format("{} {} {} x {} x {} {}{}{}{}{}", key.transpose_a ? 'T' : 'N', key.transpose_b ? 'T' : 'N', key.m,
                       key.n, key.k, types::name_of(key.output), key.bias ? " + bias" : "", key.add ? " + C" : "",
                       key.factors != GemmFactors::bf16 ? fmt::format(" of {}", name_of(key.factors)) : "",
                       key.experts > 1 ? fmt::format(", {} times", key.experts) : "");
}

std::string_view name_of(GemmFactors factors) {
    switch (factors) {
        case GemmFactors::bf16: return "bf16";
        case GemmFactors::e4m3: return "e4m3";
        case GemmFactors::e4m3_and_e5m2: return "e4m3_and_e5m2";
    }
    return "";
}

std::int64_t factor_bytes(const GemmKey& key) { return key.factors == GemmFactors::bf16 ? 2 : 1; }

double flops(const GemmKey& key) {
    return 2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k) *
           static_cast<double>(key.experts);
}

}  // namespace stowage::executor
