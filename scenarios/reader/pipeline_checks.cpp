#include "scenarios/reader/check_tools.hpp"
#include "scenarios/reader/checks.hpp"
#include "scenarios/types/stages.hpp"

namespace stowage::reader {
namespace {

constexpr std::string_view kLayout = "parallel.pipeline_model_parallel_layout";
constexpr std::string_view kChunkLayers = "parallel.num_layers_per_virtual_pipeline_stage";
constexpr std::string_view kFirst = "parallel.decoder_first_pipeline_num_layers";
constexpr std::string_view kLast = "parallel.decoder_last_pipeline_num_layers";
constexpr std::string_view kEmbedding = "parallel.account_for_embedding_in_pipeline_split";
constexpr std::string_view kLoss = "parallel.account_for_loss_in_pipeline_split";
constexpr std::string_view kGroup = "parallel.microbatch_group_size_per_virtual_pipeline_stage";
constexpr std::string_view kPattern = "model.hybrid_layer_pattern";

/// Megatron takes one way to divide the layers.
/// Result: whether the layout says one thing.
bool check_one_way(Gathered& gathered, const ScenarioDraft& draft) {
    const types::ParallelLayout& parallel = draft.scenario.parallel;
    const bool ends = parallel.decoder_first_pipeline_num_layers || parallel.decoder_last_pipeline_num_layers;
    const bool counted =
        parallel.account_for_embedding_in_pipeline_split || parallel.account_for_loss_in_pipeline_split;
    const bool letters = !parallel.pipeline_model_parallel_layout.empty();
    const bool marked = draft.model.hybrid && draft.model.hybrid->stages.size() > 1;
    const auto contradiction = [&](std::string_view path, const std::string& other) {
        report(gathered, path, "stands beside " + other + ", expected one of them");
        return false;
    };
    if (letters && marked && gathered.where.contains(kLayout))
        return contradiction(kLayout, "the stages of hybrid_layer_pattern");
    const std::string by_letters = marked ? "the stages of hybrid_layer_pattern" : "pipeline_model_parallel_layout";
    if (letters && ends) return contradiction(parallel.decoder_first_pipeline_num_layers ? kFirst : kLast, by_letters);
    if (letters && counted)
        return contradiction(parallel.account_for_embedding_in_pipeline_split ? kEmbedding : kLoss, by_letters);
    if (ends && counted)
        return contradiction(parallel.account_for_embedding_in_pipeline_split ? kEmbedding : kLoss,
                             "the layers of the first or last stage");
    if (!draft.layers_per_virtual_stage) return true;
    if (draft.virtual_stages) return contradiction(kChunkLayers, "num_virtual_stages_per_pipeline_rank");
    if (letters) return contradiction(kChunkLayers, by_letters);
    if (ends) return contradiction(kChunkLayers, "the layers of the first or last stage");
    return true;
}

/// The key of a division into stages that fails.
std::string_view division_at_fault(const ScenarioDraft& draft) {
    types::ParallelLayout whole = draft.scenario.parallel;
    whole.num_virtual_stages_per_pipeline_rank = 1;
    const bool ranks_divide = std::holds_alternative<types::StageTable>(stage_table(whole, draft.scenario.model));
    if (ranks_divide) return draft.virtual_stages ? kVirtual : kChunkLayers;
    if (whole.decoder_first_pipeline_num_layers) return kFirst;
    return whole.decoder_last_pipeline_num_layers ? kLast : kPipeline;
}

void check_layers(Gathered& gathered, const ScenarioDraft& draft) {
    const types::Scenario& scenario = draft.scenario;
    const types::ParallelLayout& parallel = scenario.parallel;
    if (!all_read(gathered, {"model.num_layers", "model.mtp_num_layers", kPattern, kPipeline, kVirtual, kChunkLayers,
                             kFirst, kLast, kEmbedding, kLoss, kLayout}) ||
        !check_one_way(gathered, draft))
        return;
    if (parallel.num_virtual_stages_per_pipeline_rank == 0)
        return report(gathered, kChunkLayers,
                      "the layers of a pipeline rank are not a multiple of " + number(*draft.layers_per_virtual_stage));
    constexpr std::int64_t kMostStages = 1'000'000;
    if (product(parallel.pipeline_model_parallel_size, parallel.num_virtual_stages_per_pipeline_rank) > kMostStages)
        return report(gathered, kPipeline, "the pipeline has more than 10^6 stages, expected fewer");
    const auto placed = types::stage_table(parallel, scenario.model);
    const auto* no = std::get_if<types::NoStages>(&placed);
    if (no == nullptr) return;
    if (gathered.where.contains(kLayout))
        report(gathered, kLayout, no->reason, "one letter a layer, stages separated by |, for example Et*3|(tt|)*6mL");
    else if (!parallel.pipeline_model_parallel_layout.empty())
        report(gathered, kPattern, no->reason, "| separates the stages, in the order in which a microbatch passes");
    else
        report(gathered, division_at_fault(draft), no->reason,
               "decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers, "
               "account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split change the division");
}

/// Source: Megatron-LM, arguments.py (ranks) and schedules.py (groups of microbatches).
void check_interleaving(Gathered& gathered, const types::Scenario& scenario) {
    const types::ParallelLayout& parallel = scenario.parallel;
    const std::int64_t ranks = parallel.pipeline_model_parallel_size;
    if (!all_read(gathered, {kPipeline, kVirtual, kChunkLayers, kLayout, "parallel.overlap_p2p_comm"}) ||
        parallel.num_virtual_stages_per_pipeline_rank < 2)
        return;
    const std::int64_t least = parallel.overlap_p2p_comm ? 2 : 3;
    if (ranks < least)
        return report(gathered, kPipeline,
                      "found " + number(ranks) + " with interleaved virtual stages, expected at least " +
                          number(least) + (parallel.overlap_p2p_comm ? "" : " without overlap_p2p_comm"));
    if (!all_read(gathered, {kGroup, "batch.global_batch_size", "batch.micro_batch_size", kData}) ||
        parallel.data_parallel_size == 0)
        return;
    const std::int64_t sequences = product(scenario.batch.micro_batch_size, parallel.data_parallel_size);
    if (scenario.batch.global_batch_size % sequences != 0) return;
    const std::int64_t microbatches = scenario.batch.global_batch_size / sequences;
    const std::int64_t group = parallel.microbatch_group_size();
    const std::string_view at = gathered.where.contains(kGroup) ? kGroup : "batch.global_batch_size";
    if (group < ranks || group > microbatches)
        return report(gathered, at,
                      "groups of " + number(group) + " of " + number(microbatches) +
                          " microbatches, expected from pipeline_model_parallel_size " + number(ranks) +
                          " to the number of microbatches, with interleaved virtual stages");
    const std::int64_t rest = microbatches % group;
    if (rest > 0 && rest < ranks)
        report(gathered, at,
               number(microbatches) + " microbatches leave a group of " + number(rest) +
                   ", expected no rest or at least pipeline_model_parallel_size " + number(ranks) +
                   ", with interleaved virtual stages");
}

}  // namespace

void check_pipeline(Gathered& gathered, const ScenarioDraft& draft) {
    check_layers(gathered, draft);
    check_interleaving(gathered, draft.scenario);
}

}  // namespace stowage::reader
