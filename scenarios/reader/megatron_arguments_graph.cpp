#include <algorithm>

#include "scenarios/reader/megatron_arguments_parts.hpp"

namespace stowage::reader {
namespace {

using types::CudaGraphImpl;

constexpr std::string_view kImplKey = "cuda_graph.cuda_graph_impl";
constexpr std::string_view kModulesKey = "cuda_graph.cuda_graph_modules";

/// enable_cuda_graph and external_cuda_graph are older names of two implementations.
void import_impl(Arguments& arguments, types::CudaGraph& graph) {
    const std::string word = arguments.plain("cuda_graph_impl");
    if (arguments.judging() && !word.empty() && !types::parse_name<CudaGraphImpl>(word)) {
        arguments.text("cuda_graph_impl", kImplKey);
        arguments.reject("cuda_graph_impl", "cuda_graph_impl",
                         "found " + in_quotes(word) + ", which is no implementation",
                         "Say none, local, transformer_engine or full_iteration.");
    } else {
        arguments.choice("cuda_graph_impl", kImplKey, graph.cuda_graph_impl);
    }
    const bool named = graph.cuda_graph_impl != CudaGraphImpl::none;
    const bool local = arguments.flag("enable_cuda_graph", kImplKey);
    const bool external = arguments.flag("external_cuda_graph", kImplKey);
    const std::string_view older = local ? "enable_cuda_graph" : "external_cuda_graph";
    if ((local || external) && named) arguments.error(older, "beside cuda-graph-impl", "give cuda-graph-impl alone");
    if (local && external) arguments.error("external_cuda_graph", "beside enable-cuda-graph", "give one of them");
    if (local) graph.cuda_graph_impl = CudaGraphImpl::local;
    if (external) graph.cuda_graph_impl = CudaGraphImpl::transformer_engine;
}

bool take_word(std::vector<std::string>& words, std::string_view word) {
    const auto at = std::remove(words.begin(), words.end(), word);
    const bool found = at != words.end();
    words.erase(at, words.end());
    return found;
}

/// Words that are no modules any more: `full` stood for the empty list, `full_iteration` for an implementation.
void take_older_words(Arguments& arguments, std::string_view name, types::CudaGraph& graph,
                      std::vector<std::string>& words) {
    const std::size_t count = words.size();
    const bool whole_layer = take_word(words, "full");
    const bool iteration = take_word(words, "full_iteration");
    const bool inference = take_word(words, "full_iteration_inference");
    if (whole_layer && count > 1)
        arguments.finding(name, "G1", true, "'full' stands beside other modules",
                          "Give 'full' alone: the whole layer.");
    if ((iteration || inference) && count > 1)
        arguments.finding(name, "G3", true, "a deprecated whole-iteration word stands beside other modules",
                          "Give cuda-graph-impl: full_iteration and no modules.");
    if (inference) arguments.note(name, "full_iteration_inference is about inference; passed over");
    if (!iteration) return;
    if (graph.cuda_graph_impl == CudaGraphImpl::transformer_engine)
        return arguments.finding(name, "G3", true, "'full_iteration' with cuda-graph-impl: transformer_engine",
                                 "Give cuda-graph-impl: full_iteration and no modules.");
    graph.cuda_graph_impl = CudaGraphImpl::full_iteration;
    arguments.finding(name, "G3", false, "'full_iteration' is taken as cuda-graph-impl: full_iteration",
                      "Give cuda-graph-impl: full_iteration and no modules.");
}

void import_modules(Arguments& arguments, std::string_view name, types::CudaGraph& graph) {
    auto words = arguments.words(name, kModulesKey);
    if (!words) return;
    take_older_words(arguments, name, graph, *words);
    graph.cuda_graph_modules.clear();
    ChoiceKind known = choice_kind<types::CudaGraphModule>();
    for (const std::string& word : *words) {
        if (const auto module = types::parse_name<types::CudaGraphModule>(word)) {
            graph.cuda_graph_modules.push_back(*module);
            continue;
        }
        Value value;
        value.kind = Value::Kind::scalar;
        value.text = word;
        const ReadScalar read = read_scalar(value, ScalarKind{known});
        arguments.reject(name, "cuda_graph_modules", read.message, read.hint);
    }
}

/// What inference captures does not change training, but Megatron refuses a pair that does not fit.
void check_inference_scope(Arguments& arguments, const types::CudaGraph& graph) {
    const auto scope = arguments.text("inference_cuda_graph_scope", {});
    if (!scope) return;
    const bool local = graph.cuda_graph_impl == CudaGraphImpl::local;
    if (local ? (*scope == "layer" || *scope == "block") : *scope == "none") return;
    arguments.finding("inference_cuda_graph_scope", "G4", true,
                      "inference-cuda-graph-scope: " + *scope +
                          " with cuda-graph-impl: " + std::string(types::name_of(graph.cuda_graph_impl)),
                      local ? "Say layer or block." : "Leave inference-cuda-graph-scope out.");
}

}  // namespace

void import_cuda_graph(Arguments& arguments, types::CudaGraph& graph) {
    import_impl(arguments, graph);
    if (arguments.given("cuda_graph_scope") && arguments.given("cuda_graph_modules"))
        arguments.error("cuda_graph_scope", "beside cuda-graph-modules, its newer name", "give one of them");
    import_modules(arguments, "cuda_graph_scope", graph);
    import_modules(arguments, "cuda_graph_modules", graph);
    arguments.count("cuda_graph_warmup_steps", "cuda_graph.cuda_graph_warmup_steps", graph.cuda_graph_warmup_steps,
                    IntegerRange{0, 1'000'000});
    check_inference_scope(arguments, graph);
}

}  // namespace stowage::reader
