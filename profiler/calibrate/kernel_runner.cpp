#include "profiler/calibrate/kernel_runner.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/stream.hpp"
#include "executor/workload/workload.hpp"
#include "profiler/calibrate/fp8_products.hpp"
#include "profiler/calibrate/probe_kernels.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::calibrate {
namespace {

using executor::check;
using executor::DeviceBuffer;
using layers::Call;
using layers::CallSizes;
using types::operator""_MiB;

constexpr Bytes kInputs = 1536_MiB;
constexpr Bytes kOutputs = 2048_MiB;
constexpr Bytes kFp8Inputs = 512_MiB;
constexpr Bytes kGemmWorkspace = 32_MiB;        // as stowage's own layers give
constexpr Bytes kAttentionWorkspace = 520_MiB;  // the most that they give: planner/layers/stowage/attention_workspace
constexpr std::int64_t kAlignment = 256;
constexpr std::int64_t kMostTurns = 8;
constexpr double kNormEpsilon = 1e-5;

enum class Place : std::uint8_t { input, output, kept, workspace };
struct Operand {
    Place place{};
    std::int64_t bytes = 0;
};

std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

/// A call of the workload and its operands, in order.
struct Recipe {
    Call call = Call::none;
    CallSizes sizes;
    std::vector<Operand> operands;

    [[nodiscard]] std::int64_t bytes_in(Place place) const {
        std::int64_t sum = 0;
        for (const Operand& operand : operands)
            if (operand.place == place) sum += aligned(operand.bytes);
        return sum;
    }
};

CallSizes sizes_of(const KernelCase& kernel) {
    CallSizes sizes;
    sizes.rows = kernel.rows;
    sizes.columns = kernel.columns;
    sizes.depth = kernel.depth;
    return sizes;
}

Recipe linear_recipe(const KernelCase& kernel) {
    const std::int64_t x = 2 * kernel.rows * kernel.depth;
    const std::int64_t weight = 2 * kernel.columns * kernel.depth;
    const std::int64_t y = 2 * kernel.rows * kernel.columns;
    Recipe recipe{Call::linear_forward, sizes_of(kernel), {}};
    recipe.sizes.workspace_bytes = kGemmWorkspace.count;
    const Operand workspace{Place::workspace, kGemmWorkspace.count};
    if (kernel.kind == KernelKind::linear_forward) {
        recipe.operands = {{Place::input, x}, {Place::input, weight}, {Place::output, y}, workspace};
    } else if (kernel.kind == KernelKind::linear_input_gradient) {
        recipe.call = Call::linear_input_gradient;
        recipe.operands = {{Place::input, y}, {Place::input, weight}, {Place::output, x}, workspace};
    } else {
        recipe.call = Call::linear_weight_gradient;
        recipe.operands = {{Place::input, y}, {Place::input, x}, {Place::output, weight}, workspace};
    }
    return recipe;
}

Recipe attention_recipe(const KernelCase& kernel) {
    const std::int64_t packed = 2 * kernel.rows * kernel.heads * (2 * kernel.head_size + kernel.value_size);
    const std::int64_t output = 2 * kernel.rows * kernel.heads * kernel.value_size;
    const std::int64_t statistics = 4 * kernel.rows * kernel.heads;
    Recipe recipe{Call::attention_forward, sizes_of(kernel), {}};
    CallSizes& sizes = recipe.sizes;
    sizes.batch = kernel.rows / kernel.sequence;
    sizes.sequence = kernel.sequence;
    sizes.heads = sizes.groups = kernel.heads;
    sizes.head_size = kernel.head_size;
    sizes.value_size = kernel.value_size == kernel.head_size ? 0 : kernel.value_size;
    sizes.value = 1 / std::sqrt(static_cast<double>(kernel.head_size));
    if (kernel.kind == KernelKind::attention_forward) {
        sizes.workspace_bytes = kGemmWorkspace.count;
        recipe.operands = {{Place::input, packed},
                           {Place::output, output},
                           {Place::output, statistics},
                           {Place::workspace, kGemmWorkspace.count}};
        return recipe;
    }
    recipe.call = Call::attention_backward;
    sizes.workspace_bytes = kAttentionWorkspace.count;
    recipe.operands = {{Place::input, packed}, {Place::kept, output},   {Place::kept, statistics},
                       {Place::input, output}, {Place::output, packed}, {Place::workspace, kAttentionWorkspace.count}};
    return recipe;
}

Recipe norm_recipe(const KernelCase& kernel) {
    const std::int64_t x = 2 * kernel.rows * kernel.columns;
    const std::int64_t weight = 2 * kernel.columns;
    const std::int64_t rstd = 4 * kernel.rows;
    Recipe recipe{Call::norm_forward, sizes_of(kernel), {}};
    recipe.sizes.value = kNormEpsilon;
    if (kernel.kind == KernelKind::norm_forward) {
        recipe.operands = {{Place::input, x}, {Place::input, weight}, {Place::output, x}, {Place::output, rstd}};
        return recipe;
    }
    const std::int64_t partials = 4 * layers::norm_partials(kernel.rows) * kernel.columns;
    recipe.call = Call::norm_backward;
    recipe.sizes.workspace_bytes = partials;
    recipe.operands = {{Place::input, x},  {Place::input, weight},  {Place::kept, rstd},      {Place::input, x},
                       {Place::output, x}, {Place::output, weight}, {Place::output, partials}};
    return recipe;
}

Recipe activation_recipe(const KernelCase& kernel) {
    const std::int64_t narrow = 2 * kernel.rows * kernel.columns;
    Recipe recipe{Call::activation_forward, sizes_of(kernel), {}};
    recipe.sizes.gated = true;
    recipe.operands = {{Place::input, 2 * narrow}, {Place::output, narrow}};
    if (kernel.kind == KernelKind::activation_forward) return recipe;
    recipe.call = Call::activation_backward;
    recipe.operands = {
        {Place::input, 2 * narrow}, {Place::input, narrow}, {Place::output, 2 * narrow}, {Place::output, narrow}};
    return recipe;
}

/// Of kinds that are no calls of the workload: the call is `none`.
Recipe probe_recipe(const KernelCase& kernel) {
    Recipe recipe{Call::none, sizes_of(kernel), {}};
    const std::int64_t rows = kernel.rows;
    if (kernel.kind == KernelKind::memory_copy) {
        recipe.operands = {{Place::input, rows}, {Place::output, rows}};
    } else if (kernel.kind == KernelKind::strided_copy) {
        recipe.operands = {{Place::input, 2 * rows / kRunLength * kRunDistance}, {Place::output, 2 * rows}};
    } else {
        recipe.operands = {{Place::input, rows * kernel.depth},
                           {Place::input, kernel.columns * kernel.depth},
                           {Place::output, 2 * rows * kernel.columns},
                           {Place::workspace, kGemmWorkspace.count}};
    }
    return recipe;
}

Recipe recipe_of(const KernelCase& kernel) {
    switch (kernel.kind) {
        case KernelKind::linear_forward:
        case KernelKind::linear_input_gradient:
        case KernelKind::linear_weight_gradient: return linear_recipe(kernel);
        case KernelKind::attention_forward:
        case KernelKind::attention_backward: return attention_recipe(kernel);
        case KernelKind::norm_forward:
        case KernelKind::norm_backward: return norm_recipe(kernel);
        case KernelKind::activation_forward:
        case KernelKind::activation_backward: return activation_recipe(kernel);
        default: return probe_recipe(kernel);
    }
}

/// The forward whose results a backward keeps, if it does.
std::optional<KernelCase> forward_of(const KernelCase& kernel) {
    KernelCase forward = kernel;
    if (kernel.kind == KernelKind::attention_backward) {
        forward.kind = KernelKind::attention_forward;
        return forward;
    }
    if (kernel.kind == KernelKind::norm_backward) {
        forward.kind = KernelKind::norm_forward;
        return forward;
    }
    return std::nullopt;
}

struct Ready {
    KernelCase kernel;
    Recipe recipe;
    DeviceBuffer kept;
    std::int64_t turns = 1;
};

}  // namespace

struct KernelRunner::State {
    executor::Workload workload{{.device = 0, .gemm_table = {}, .seed = 1}};
    executor::Stream stream;
    DeviceBuffer inputs{kInputs};
    DeviceBuffer outputs{kOutputs};
    DeviceBuffer workspace{kAttentionWorkspace};
    DeviceBuffer fp8_inputs{kFp8Inputs};
    Fp8Products fp8{kGemmWorkspace.count};
    std::vector<Ready> ready;
    std::size_t last = 0;

    State() {
        CallSizes sizes;
        sizes.rows = 1;
        sizes.columns = kInputs.count / 2;
        void* all = inputs.data();
        workload.launch(Call::load_hidden, sizes, {&all, 1}, stream.get(), {});
        fill_fp8(fp8_inputs.data(), kFp8Inputs.count, stream.get());
        check(cudaMemsetAsync(outputs.data(), 0, static_cast<std::size_t>(kOutputs.count), stream.get()),
              "clearing outputs");
        load_probe_kernels();
        check(cudaGetLastError(), "loading the kernels of the calibration");
        stream.synchronize("filling operands");
    }

    /// Most calls are of the kernel of the call before, and looking for it is not what is to be timed.
    [[nodiscard]] const Ready* find(const KernelCase& kernel) {
        if (last < ready.size() && ready[last].kernel == kernel) return &ready[last];
        const auto found = std::ranges::find(ready, kernel, &Ready::kernel);
        if (found == ready.end()) return nullptr;
        last = static_cast<std::size_t>(found - ready.begin());
        return &*found;
    }

    [[nodiscard]] std::vector<void*> pointers(const Ready& one, std::int64_t turn) const {
        const bool is_fp8 = one.kernel.kind == KernelKind::fp8_forward;
        std::byte* input = (is_fp8 ? fp8_inputs : inputs).data() + turn * one.recipe.bytes_in(Place::input);
        std::byte* output = outputs.data() + turn * one.recipe.bytes_in(Place::output);
        std::byte* kept = one.kept.data();
        std::vector<void*> result;
        for (const Operand& operand : one.recipe.operands) {
            std::byte* scratch = workspace.data();
            std::byte*& at = operand.place == Place::input    ? input
                             : operand.place == Place::output ? output
                             : operand.place == Place::kept   ? kept
                                                              : scratch;
            result.push_back(at);
            at += aligned(operand.bytes);
        }
        return result;
    }

    /// How many sets of operands there is room for.
    [[nodiscard]] std::int64_t turns_of(const Ready& one) const {
        const Bytes room = one.kernel.kind == KernelKind::fp8_forward ? kFp8Inputs : kInputs;
        const std::int64_t inputs_of_turn = std::max<std::int64_t>(one.recipe.bytes_in(Place::input), 1);
        const std::int64_t outputs_of_turn = std::max<std::int64_t>(one.recipe.bytes_in(Place::output), 1);
        const std::int64_t turns = std::min(room.count / inputs_of_turn, kOutputs.count / outputs_of_turn);
        STOWAGE_CHECK(turns > 0, "operands of a calibration fit its memory");
        return std::min(turns, kMostTurns);
    }

    void run(const Ready& one, std::int64_t turn, cudaStream_t on) {
        const std::vector<void*> buffers = pointers(one, turn % one.turns);
        const CallSizes& sizes = one.recipe.sizes;
        switch (one.kernel.kind) {
            case KernelKind::memory_copy: vector_copy(buffers[0], buffers[1], sizes.rows, on); break;
            case KernelKind::strided_copy: strided_copy(buffers[0], buffers[1], sizes.rows, on); break;
            case KernelKind::fp8_forward:
                fp8.launch({sizes.rows, sizes.columns, sizes.depth}, fp8_buffers(buffers), on);
                break;
            default: workload.launch(one.recipe.call, sizes, buffers, on, {});
        }
    }

    static Fp8Buffers fp8_buffers(const std::vector<void*>& buffers) {
        return {buffers[0], buffers[1], buffers[2], buffers[3]};
    }

    /// Output and statistics, or 1 / rms: what stands in the forward's operands where the backward keeps it.
    void keep_forward(const KernelCase& forward, Ready& backward) {
        const Recipe recipe = recipe_of(forward);
        const executor::CallShape shape{recipe.call, recipe.sizes};
        workload.prepare({&shape, 1});
        backward.kept = DeviceBuffer(Bytes{backward.recipe.bytes_in(Place::kept)});
        const Ready one{forward, recipe, {}, 1};
        std::vector<void*> buffers = pointers(one, 0);
        std::byte* kept = backward.kept.data();
        if (forward.kind == KernelKind::attention_forward) {
            buffers[1] = kept;
            buffers[2] = kept + aligned(backward.recipe.operands[1].bytes);
        } else {
            buffers[3] = kept;
        }
        workload.launch(recipe.call, recipe.sizes, buffers, stream.get(), {});
        stream.synchronize("running the forward of a backward");
    }

    void prepare(const KernelCase& kernel) {
        if (find(kernel) != nullptr) return;
        Ready one{kernel, recipe_of(kernel), {}, 1};
        one.turns = turns_of(one);
        if (one.recipe.call != Call::none) {
            const executor::CallShape shape{one.recipe.call, one.recipe.sizes};
            workload.prepare({&shape, 1});
        } else if (kernel.kind == KernelKind::fp8_forward) {
            const CallSizes& sizes = one.recipe.sizes;
            fp8.prepare({sizes.rows, sizes.columns, sizes.depth}, fp8_buffers(pointers(one, 0)), stream.get());
        }
        if (const auto forward = forward_of(kernel)) keep_forward(*forward, one);
        run(one, 0, stream.get());
        check(cudaGetLastError(), "running a kernel of the calibration");
        stream.synchronize("running a kernel of the calibration");
        ready.push_back(std::move(one));
    }
};

KernelRunner::KernelRunner() : state_(std::make_unique<State>()) {}
KernelRunner::~KernelRunner() = default;

void KernelRunner::prepare(const KernelCase& kernel) { state_->prepare(kernel); }

void KernelRunner::launch(const KernelCase& kernel, int turn, cudaStream_t stream) {
    const Ready* const one = state_->find(kernel);
    STOWAGE_CHECK(one != nullptr, "a kernel of a calibration was prepared");
    state_->run(*one, turn, stream);
}

std::byte* KernelRunner::scratch() const { return state_->outputs.data(); }
Bytes KernelRunner::scratch_size() const { return kOutputs; }

Bytes KernelRunner::arenas() const {
    constexpr std::int64_t kStep = std::int64_t{2} << 20;
    Bytes sum = kInputs + kOutputs + kAttentionWorkspace + kFp8Inputs;
    for (const Ready& one : state_->ready) sum = sum + Bytes{(one.kept.size().count + kStep - 1) / kStep * kStep};
    return sum;
}

}  // namespace stowage::calibrate
