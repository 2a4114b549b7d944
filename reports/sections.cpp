#include "reports/sections.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/graph_sections.hpp"
#include "reports/megatron_flags.hpp"
#include "reports/table.hpp"
#include "reports/units.hpp"

namespace stowage::reports {
namespace {

std::int64_t bytes(const Json& object, const char* key) { return object.at(key).get<std::int64_t>(); }

std::string text(const Json& object, const char* key) { return object.at(key).get<std::string>(); }

std::string layout_words(const Json& scenario) {
    struct Part {
        const char* key;
        const char* name;
        bool always;
    };
    constexpr Part kParts[] = {{"tensor_model_parallel_size", "TP", true},
                               {"pipeline_model_parallel_size", "PP", true},
                               {"num_virtual_stages_per_pipeline_rank", "VP", false},
                               {"context_parallel_size", "CP", false},
                               {"expert_model_parallel_size", "EP", false},
                               {"data_parallel_size", "DP", true}};
    const Json& parallel = scenario.at("parallel");
    std::string words;
    for (const Part& part : kParts) {
        const std::int64_t size = bytes(parallel, part.key);
        if (size == 1 && !part.always) continue;
        words += fmt::format("{}{} {}", words.empty() ? "" : ", ", part.name, size);
    }
    if (parallel.at("sequence_parallel").get<bool>()) words += ", sequence parallel";
    return words;
}

std::string batch_words(const Json& document) {
    const Json& batch = document.at("scenario").at("batch");
    return fmt::format("{} sequences of {} tokens in {} microbatches of {}", bytes(batch, "global_batch_size"),
                       bytes(batch, "seq_length"), bytes(document.at("job"), "microbatches"),
                       bytes(batch, "micro_batch_size"));
}

std::string hardware_words(const Json& scenario) {
    const Json& hardware = scenario.at("hardware");
    const std::int64_t nodes = bytes(hardware, "nodes");
    return fmt::format("{} node{} of {}", nodes, nodes == 1 ? "" : "s", hardware.at("node").value("name", "?"));
}

std::string labelled(const char* label, const std::string& words) {
    return fmt::format("  {:<10}{}\n", label, wrapped(words, 12));
}

/// What a stage of the run is called in a document, and in a heading.
struct RunStage {
    const char* key;
    const char* name;
};
constexpr RunStage kRunStages[] = {
    {"first_iteration", "first"}, {"eager_iterations", "eager"}, {"capture", "capture"}, {"later_iterations", "later"}};

bool stages_differ(const Json& ranks) {
    return std::any_of(ranks.begin(), ranks.end(), [](const Json& rank) {
        return rank.contains("graphs") || rank.at("first_iteration") != rank.at("later_iterations");
    });
}

std::string stages_table(const Json& ranks) {
    std::vector<RunStage> stages;
    for (const RunStage& stage : kRunStages)
        if (std::any_of(ranks.begin(), ranks.end(), [&](const Json& rank) { return rank.contains(stage.key); }))
            stages.push_back(stage);
    std::vector<Table::Column> columns{{"PP rank"}};
    for (const char* peak : {"allocated: ", "reserved: "})
        for (std::size_t i = 0; i < stages.size(); ++i)
            columns.push_back({i == 0 ? std::string(peak) + stages[i].name : stages[i].name});
    Table table(std::move(columns));
    for (const Json& rank : ranks) {
        std::vector<std::string> cells{rank.at("pipeline_rank").dump()};
        for (const char* peak : {"peak_allocated_bytes", "peak_reserved_bytes"})
            for (const RunStage& stage : stages)
                cells.push_back(rank.contains(stage.key) ? gib(bytes(rank.at(stage.key), peak)) : "-");
        table.add(std::move(cells));
    }
    const char* const heading =
        have_graphs(ranks) ? "Peaks of the first iteration, of eager ones, of the capture and of later ones, GiB"
                           : "Peaks of the first iteration and of later ones, GiB";
    return fmt::format("\n{}\n{}", heading, table.text());
}

std::int64_t moved(const Json& rank) {
    std::int64_t sum = 0;
    for (const Json& count : rank.at("offloaded_bytes")) sum += count.get<std::int64_t>();
    return sum;
}

bool anything_moved(const Json& ranks) {
    return std::any_of(ranks.begin(), ranks.end(), [](const Json& rank) { return moved(rank) > 0; });
}

/// Modules that any rank moved, in their order.
std::vector<std::string> moved_modules(const Json& ranks) {
    std::vector<std::string> names;
    for (const auto& [module, name] : types::enum_names<types::Module>()) {
        const std::string key(name);
        if (std::any_of(ranks.begin(), ranks.end(),
                        [&](const Json& rank) { return rank.at("offloaded_bytes").contains(key); }))
            names.push_back(key);
    }
    return names;
}

std::string modules_table(const Json& ranks) {
    const std::vector<std::string> modules = moved_modules(ranks);
    if (modules.empty() || !anything_moved(ranks)) return {};
    std::vector<Table::Column> columns{{"PP rank"}};
    for (const std::string& module : modules) columns.push_back({module});
    columns.push_back({"all"});
    Table table(std::move(columns));
    for (const Json& rank : ranks) {
        std::vector<std::string> cells{rank.at("pipeline_rank").dump()};
        for (const std::string& module : modules)
            cells.push_back(gib(rank.at("offloaded_bytes").value(module, std::int64_t{0})));
        cells.push_back(gib(moved(rank)));
        table.add(std::move(cells));
    }
    return "\nMoved to the host in one step, by module, GiB\n" + table.text();
}

std::string ranks_table(const Json& ranks, std::int64_t device_limit) {
    const bool offloads = anything_moved(ranks);
    const bool graphs = have_graphs(ranks);
    std::vector<Table::Column> columns{{"PP rank"}, {"layers"}, {"static"}, {"allocated"}, {"reserved"}};
    if (graphs) columns.push_back({"graphs"});
    columns.push_back({"head-room"});
    if (offloads) columns.insert(columns.end(), {{"offloaded"}, {graphs ? "pinned" : "pinned host"}, {"exposed copy"}});
    Table table(std::move(columns));
    for (const Json& rank : ranks) {
        const std::int64_t reserved = bytes(rank, "peak_reserved_bytes");
        std::vector<std::string> cells{rank.at("pipeline_rank").dump(), rank.at("layers").dump(),
                                       gib(bytes(rank, "static_bytes")), gib(bytes(rank, "peak_allocated_bytes")),
                                       gib(reserved)};
        if (graphs) cells.push_back(gib(executable_graphs(rank)));
        cells.push_back(gib(device_limit - peak_device(rank)));
        if (offloads) {
            cells.push_back(gib(moved(rank)));
            cells.push_back(gib(bytes(rank, "pinned_host_bytes")));
            cells.push_back(milliseconds(rank.at("exposed_copy_us").get<double>()));
        }
        table.add(std::move(cells));
    }
    const char* const copies = offloads ? "; exposed copy in ms a step" : "";
    const char* const beside = graphs ? "; graphs: the driver's memory for them" : "";
    const std::string heading =
        fmt::format("Each pipeline rank: GiB, allocated and reserved at their peaks{}{}", beside, copies);
    return "\n" + wrapped(heading, 2) + "\n" + table.text();
}

/// Of policy `stowage`: how many layers' groups leave, by module.
std::string free_words(const Json& free) {
    std::string words;
    for (const auto& [module, name] : types::enum_names<types::Module>()) {
        const Json wanted(name);
        const auto& layers = free.at("by_layer");
        const auto groups = std::count_if(layers.begin(), layers.end(), [&](const Json& modules) {
            return std::find(modules.begin(), modules.end(), wanted) != modules.end();
        });
        if (groups > 0) words += fmt::format("{}{} of {} layers", words.empty() ? "" : ", ", name, groups);
    }
    if (words.empty()) return "nothing";
    return fmt::format("{}; reloads {} groups ahead, copies joined {} commits on", words, bytes(free, "reload_ahead"),
                       bytes(free, "join_after"));
}

}  // namespace

const Json& fullest_rank(const Json& ranks) {
    return *std::max_element(ranks.begin(), ranks.end(), [](const Json& left, const Json& right) {
        return peak_device(left) < peak_device(right);
    });
}

std::string module_words(const Json& choice) {
    std::string words;
    for (const Json& module : choice.at("offload_modules"))
        words += fmt::format("{}{}", words.empty() ? "" : " ", module.get<std::string>());
    return words.empty() ? "nothing" : words;
}

std::string choice_words(const Json& choice) {
    if (choice.contains("free")) return free_words(choice.at("free"));
    if (choice.at("offload_modules").empty()) return "nothing";
    std::string words = fmt::format("{}, fraction {}", module_words(choice),
                                    plain_number(choice.at("activation_offload_fraction").get<double>()));
    if (choice.value("delay_offload_until_cuda_graph", false)) words += ", delayed to the next layer's graph";
    return words;
}

std::string job_section(const Json& document) {
    const Json& scenario = document.at("scenario");
    const Json& limits = document.at("limits");
    const std::string model = fmt::format("{}, {} parameters", scenario.at("model").value("name", "unnamed"),
                                          grouped(bytes(document.at("job"), "parameters")));
    const std::string layout = fmt::format("{} GPUs: {}", bytes(document.at("job"), "gpus"), layout_words(scenario));
    std::string section = labelled("model", model);
    section += labelled("layout", layout);
    section += labelled("batch", batch_words(document));
    section += labelled("hardware", hardware_words(scenario));
    section += labelled("limits", fmt::format("{} GiB of device memory a GPU, {} GiB of pinned host memory a node",
                                              short_gib(bytes(limits, "device_memory_bytes")),
                                              short_gib(bytes(limits, "host_memory_per_node_bytes"))));
    const std::string graphs = graph_words(scenario);
    if (!graphs.empty()) section += labelled("graphs", graphs);
    section += labelled("software", fmt::format("layers as {} runs them, rules {}", text(document, "implementation"),
                                                text(document, "rules")));
    return section;
}

std::string flags_section(const Json& document) {
    if (text(document, "implementation") == "stowage") return {};
    const Json& flags = document.at("megatron_flags");
    const Json& arguments = flags.at("arguments");
    if (arguments.empty()) return "\nNo offloading flag is needed.\n";
    std::string section = "\nFor Megatron-LM\n";
    for (const auto& [name, value] : flags.at("environment").items())
        section += fmt::format("  export {}={}\n", name, value.get<std::string>());
    for (std::size_t i = 0; i < arguments.size(); ++i)
        section += fmt::format("  {}{}\n", arguments[i].get<std::string>(), i + 1 < arguments.size() ? " \\" : "");
    return section;
}

std::string ranks_section(const Json& ranks, std::int64_t device_limit) {
    if (ranks.empty()) return {};
    std::string section = ranks_table(ranks, device_limit);
    if (stages_differ(ranks)) section += stages_table(ranks);
    return section + graphs_section(ranks) + modules_table(ranks);
}

}  // namespace stowage::reports
