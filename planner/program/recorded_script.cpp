#include "planner/program/recorded_script.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "scenarios/types/check.hpp"

namespace stowage::program {
namespace {

using layers::Part;
using layers::SavedIndex;
using layers::ScriptBuilder;
using layers::Slot;

std::optional<types::Module> module_of(Part part) { return types::parse_name<types::Module>(name_of(part)); }

bool is_first(const std::vector<RecordedKernel>& kernels, std::size_t i) {
    return std::none_of(kernels.begin(), kernels.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const RecordedKernel& other) { return other.part == kernels[i].part; });
}

bool is_last(const std::vector<RecordedKernel>& kernels, std::size_t i) {
    return std::none_of(kernels.begin() + static_cast<std::ptrdiff_t>(i) + 1, kernels.end(),
                        [&](const RecordedKernel& other) { return other.part == kernels[i].part; });
}

/// Modules that keep something and have no kernel here.
std::vector<Part> without_kernel(const RecordedLayer& layer, const std::vector<RecordedKernel>& kernels) {
    std::vector<Part> parts;
    for (const auto& [part, sizes] : layer.saved)
        if (std::none_of(kernels.begin(), kernels.end(),
                         [part = part](const RecordedKernel& kernel) { return kernel.part == part; }))
            parts.push_back(part);
    return parts;
}

class Writer {
public:
    Writer(const RecordedLayer& layer, const layers::LayerScript& replaced, const types::Device& device)
        : layer_(layer), device_(device), script_(replaced.kind, "recorded " + replaced.name) {
        const layers::Tensor& input = replaced.tensors[layers::index(layers::kInput)];
        const layers::Tensor& gradient = replaced.tensors[layers::index(layers::kGradOutput)];
        script_.boundary(input.shape, gradient.shape, input.type);
        for (const layers::Parameter& parameter : replaced.parameters) script_.parameter(parameter);
    }

    layers::LayerScript write(const std::vector<Nanoseconds>& times) {
        next_ = times.begin();
        script_.begin_forward(layer_.forward.front().part);
        script_.allocate(layers::kOutput);
        forward();
        script_.drop(layers::kInput);
        script_.begin_backward(layer_.backward.empty() ? Part::residual : layer_.backward.front().part);
        script_.allocate(layers::kGradInput);
        backward();
        script_.drop(layers::kGradOutput);
        return script_.build();
    }

private:
    void forward() {
        const std::vector<RecordedKernel>& kernels = layer_.forward;
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            script_.part(kernels[i].part);
            if (is_first(kernels, i)) open(kernels[i].part);
            run(kernels[i]);
            if (is_last(kernels, i)) keep(kernels[i].part);
        }
        for (const Part part : without_kernel(layer_, kernels)) {
            script_.part(part);
            open(part);
            keep(part);
        }
    }

    void backward() {
        const std::vector<RecordedKernel>& kernels = layer_.backward;
        const std::vector<Part> others = without_kernel(layer_, kernels);
        for (auto part = others.rbegin(); part != others.rend(); ++part) {
            script_.part(*part);
            read(*part);
            forget(*part);
        }
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            script_.part(kernels[i].part);
            if (is_first(kernels, i)) read(kernels[i].part);
            run(kernels[i]);
            if (is_last(kernels, i)) forget(kernels[i].part);
        }
    }

    [[nodiscard]] bool keeps(Part part) const { return layer_.saved.contains(part); }
    /// The group that can move: of a module that keeps something.
    [[nodiscard]] std::optional<types::Module> group(Part part) const {
        return keeps(part) ? module_of(part) : std::nullopt;
    }

    void open(Part part) {
        if (!keeps(part)) return;
        if (const auto module = group(part)) script_.start(*module);
        for (const Bytes size : layer_.saved.at(part)) {
            const std::string name = std::string(name_of(part)) + "." + std::to_string(tensors_[part].size());
            tensors_[part].push_back(script_.tensor(name, {(size.count + 1) / 2}));
            script_.allocate(tensors_[part].back());
        }
    }

    void keep(Part part) {
        if (!keeps(part)) return;
        for (const Slot tensor : tensors_[part]) saved_[part].push_back(script_.save(tensor, group(part)));
        if (const auto module = group(part)) script_.commit(*module);
        for (const Slot tensor : tensors_[part]) script_.drop(tensor);
    }

    void read(Part part) {
        if (const auto module = group(part)) script_.commit(*module);
        for (const SavedIndex saved : saved_[part]) script_.read(saved);
    }

    void forget(Part part) {
        for (const SavedIndex saved : saved_[part]) script_.forget(saved);
        if (const auto module = group(part)) script_.start(*module);
    }

    void run(const RecordedKernel& recorded) {
        layers::Kernel kernel;
        kernel.name = std::string(name_of(recorded.part)) + "." + std::string(name_of(recorded.phase));
        kernel.kind = recorded.kind;
        kernel.measured = *next_++;
        kernel.source = layers::DurationSource::measured;
        if (kernel.kind == types::KernelClass::memory_bound)
            kernel.traffic = Bytes{static_cast<std::int64_t>(device_.memory_bandwidth.rate *
                                                             static_cast<double>(kernel.measured->count()) / 1e9)};
        script_.phase(recorded.phase);
        script_.kernel(std::move(kernel));
    }

    const RecordedLayer& layer_;
    const types::Device& device_;
    ScriptBuilder script_;
    std::vector<Nanoseconds>::const_iterator next_;
    std::map<Part, std::vector<Slot>> tensors_;
    std::map<Part, std::vector<SavedIndex>> saved_;
};

}  // namespace

layers::LayerScript recorded_script(const RecordedLayer& layer, const std::vector<Nanoseconds>& times,
                                    const layers::LayerScript& replaced, const types::Device& device) {
    STOWAGE_CHECK(times.size() == layer.forward.size() + layer.backward.size(), "a time for each kernel");
    STOWAGE_CHECK(!layer.forward.empty(), "a recorded layer has a forward");
    return Writer(layer, replaced, device).write(times);
}

}  // namespace stowage::program
