#include "tests/executor/engine/execution_requests.hpp"

#include <cstdlib>
#include <utility>

#include "planner/layers/stage.hpp"
#include "planner/program/choose_free.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::executor {

types::Scenario shipped_scenario(const std::string& name) {
    const char* const told = std::getenv("STOWAGE_SOURCE_DIR");
    const std::string folder = told != nullptr ? told : STOWAGE_SOURCE_DIR;
    return reader::load_scenario(folder + "/scenarios/" + name + ".yaml").scenario;
}

ExecutionRequest digested_request(types::Scenario scenario, std::int64_t steps, const std::string& table) {
    ExecutionRequest request;
    request.scenario = std::move(scenario);
    request.choice.min_offloaded_tensor_size = 1024;
    request.policy = "none";
    request.steps = steps;
    request.warmup_steps = 1;
    request.digest_every_step = true;
    request.profile = false;
    request.gemm_table = ::testing::TempDir() + table;
    return request;
}

ExecutionRequest under_megatron(ExecutionRequest request, const types::ModuleSet& modules) {
    request.policy = "megatron";
    request.choice.modules = modules;
    return request;
}

ExecutionRequest under_stowage(ExecutionRequest request, const types::ModuleSet& modules) {
    request.policy = "stowage";
    request.choice.modules = modules;
    request.choice.free = program::choose_free(layers::build_stage(request.scenario, 0), request.choice, 1.0);
    request.allocator = AllocatorKind::planned;
    return request;
}

ExecutionRequest with_graphs(ExecutionRequest request, types::CudaGraphImpl impl,
                             std::vector<types::CudaGraphModule> modules) {
    request.scenario.cuda_graph.cuda_graph_impl = impl;
    request.scenario.cuda_graph.cuda_graph_modules = std::move(modules);
    return request;
}

recording::Measurement run(const ExecutionRequest& request) {
    Execution execution(request, {});
    execution.reach_steady();
    execution.measure();
    return execution.take().measurement;
}

void expect_equal_runs(const std::vector<ExecutionRequest>& requests) {
    const recording::Measurement first = run(requests.front());
    for (std::size_t i = 1; i < requests.size(); ++i) {
        const recording::Measurement measured = run(requests[i]);
        EXPECT_EQ(measured.run_digest, first.run_digest) << "request " << i;
        EXPECT_EQ(measured.losses, first.losses) << "request " << i;
    }
}

}  // namespace stowage::executor
