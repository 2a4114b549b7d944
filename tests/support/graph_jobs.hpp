#pragma once

// Random jobs under CUDA graphs that offload something: small real layers, every scope that may be listed, pipelines of
// one to four ranks, experts with what surrounds them, recomputation, chunks beside each other.

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::tests {

class GraphJobs {
public:
    explicit GraphJobs(std::uint64_t seed) : engine_(seed) {}

    struct Job {
        types::Scenario scenario;
        types::OffloadChoice choice;
    };
    /// The next one that layers can be written for.
    Job next();

private:
    bool one_in(int sides) { return std::uniform_int_distribution<int>(1, sides)(engine_) == 1; }
    template <class Value>
    Value of(std::initializer_list<Value> values) {
        const auto place = std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(engine_);
        return *(values.begin() + static_cast<std::ptrdiff_t>(place));
    }
    types::Scenario scenario();
    void model(types::Scenario& scenario);
    void pipeline(types::Scenario& scenario);
    void graphs(types::Scenario& scenario);
    void pairing(types::Scenario& scenario);
    void recomputation(types::Scenario& scenario);
    std::vector<types::CudaGraphModule> scope(types::CudaGraphImpl impl, bool dense_layers);
    types::ModuleSet modules(types::CudaGraphImpl impl);
    types::OffloadChoice choice(const types::Scenario& scenario);

    std::mt19937_64 engine_;
};

/// What a job is, on one line.
std::string text_of(const GraphJobs::Job& job);

}  // namespace stowage::tests
