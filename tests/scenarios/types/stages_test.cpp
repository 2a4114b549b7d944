#include "scenarios/types/stages.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace stowage::types {
namespace {

using Counts = std::vector<std::int64_t>;
using Letters = std::vector<std::string>;

ParallelLayout stages(std::int64_t ranks, std::int64_t virtual_stages = 1) {
    ParallelLayout layout;
    layout.pipeline_model_parallel_size = ranks;
    layout.num_virtual_stages_per_pipeline_rank = virtual_stages;
    return layout;
}

ParallelLayout lettered(const std::string& letters, std::int64_t ranks, std::int64_t virtual_stages) {
    ParallelLayout layout = stages(ranks, virtual_stages);
    layout.pipeline_model_parallel_layout = letters;
    return layout;
}

Model model_of(std::int64_t layers, std::int64_t mtp = 0) {
    Model model;
    model.num_layers = layers;
    model.mtp_num_layers = mtp;
    return model;
}

StageTable table(const ParallelLayout& layout, std::int64_t layers, std::int64_t mtp = 0) {
    const auto placed = stage_table(layout, model_of(layers, mtp));
    if (const auto* no = std::get_if<NoStages>(&placed)) {
        ADD_FAILURE() << no->reason;
        return {};
    }
    return std::get<StageTable>(placed);
}

std::string reason(const ParallelLayout& layout, std::int64_t layers, std::int64_t mtp = 0) {
    const auto placed = stage_table(layout, model_of(layers, mtp));
    const auto* no = std::get_if<NoStages>(&placed);
    return no != nullptr ? no->reason : "none";
}

Counts layers_of_chunks(const StageTable& stages, std::size_t rank) {
    Counts counts;
    for (const auto& row : stages) counts.push_back(row.at(rank).layers);
    return counts;
}

/// Whatever the layout: every layer once and in order, the embedding first, the loss and the extra layers last.
void expect_whole(const StageTable& stages, std::int64_t layers) {
    std::int64_t next = 0;
    std::size_t embeddings = 0;
    std::size_t losses = 0;
    for (const auto& row : stages)
        for (const StageContents& stage : row) {
            EXPECT_EQ(stage.first_layer, next);
            next += stage.layers;
            embeddings += stage.embedding ? 1 : 0;
            losses += stage.loss ? 1 : 0;
        }
    EXPECT_EQ(next, layers);
    EXPECT_EQ(embeddings, 1U);
    EXPECT_EQ(losses, 1U);
    EXPECT_TRUE(stages.front().front().embedding);
    EXPECT_TRUE(stages.back().back().loss);
}

TEST(StageTable, DividesEvenly) {
    const StageTable placed = table(stages(4), 80);
    EXPECT_EQ(layers_per_rank(placed), (Counts{20, 20, 20, 20}));
    expect_whole(placed, 80);
}

TEST(StageTable, OfOneRankIsTheWholeModel) {
    const StageTable placed = table(stages(1), 12, 1);
    const StageContents whole{.embedding = true, .first_layer = 0, .layers = 12, .mtp_layers = 1, .loss = true};
    EXPECT_EQ(placed, (StageTable{{whole}}));
}

TEST(StageTable, RefusesARest) {
    EXPECT_EQ(reason(stages(4), 94), "the 94 layers do not divide over 4 pipeline stages");
}

TEST(StageTable, CountsEmbeddingAndLossAsLayers) {
    // Qwen3-235B on 8 stages: 94 + 2 = 96 = 8 x 12, one fewer at each end.
    ParallelLayout layout = stages(8);
    layout.account_for_embedding_in_pipeline_split = true;
    layout.account_for_loss_in_pipeline_split = true;
    EXPECT_EQ(layers_per_rank(table(layout, 94)), (Counts{11, 12, 12, 12, 12, 12, 12, 11}));
    layout.account_for_loss_in_pipeline_split = false;
    EXPECT_EQ(reason(layout, 94), "the 94 layers, with what counts as one, do not divide over 8 pipeline stages");
    EXPECT_EQ(layers_per_rank(table(layout, 95)), (Counts{11, 12, 12, 12, 12, 12, 12, 12}));
}

TEST(StageTable, TakesGivenEnds) {
    ParallelLayout layout = stages(8);
    layout.decoder_first_pipeline_num_layers = 11;
    layout.decoder_last_pipeline_num_layers = 11;
    EXPECT_EQ(layers_per_rank(table(layout, 94)), (Counts{11, 12, 12, 12, 12, 12, 12, 11}));
    layout.decoder_first_pipeline_num_layers = 95;
    EXPECT_EQ(reason(layout, 94),
              "the layers that the given first and last stage leave do not divide over the stages between");
}

TEST(StageTable, TakesOneGivenEnd) {
    // DeepSeek-V3 without its extra layer on 16 ranks: 61 = 15 x 4 + 1.
    ParallelLayout layout = stages(16);
    layout.decoder_last_pipeline_num_layers = 1;
    const StageTable placed = table(layout, 61);
    EXPECT_EQ(placed[0][14].layers, 4);
    EXPECT_EQ(placed[0][15].layers, 1);
    EXPECT_EQ(placed[0][15].first_layer, 60);
    expect_whole(placed, 61);
}

TEST(StageTable, OfTwoGivenEndsAloneMustHoldAllLayers) {
    ParallelLayout layout = stages(2);
    layout.decoder_first_pipeline_num_layers = 3;
    layout.decoder_last_pipeline_num_layers = 5;
    EXPECT_EQ(layers_per_rank(table(layout, 8)), (Counts{3, 5}));
    EXPECT_NE(reason(layout, 9), "none");
}

TEST(StageTable, GoesRoundTheRanksOnceForEachVirtualStage) {
    // 16 layers, 2 ranks x 4 virtual stages: 2 layers each; layers 0 and 1 on rank 0, 2 and 3 on rank 1, 4 and 5 on
    // rank 0 again.
    const StageTable placed = table(stages(2, 4), 16);
    ASSERT_EQ(placed.size(), 4U);
    EXPECT_EQ(layers_of_chunks(placed, 0), (Counts{2, 2, 2, 2}));
    EXPECT_EQ(placed[0][1].first_layer, 2);
    EXPECT_EQ(placed[1][0].first_layer, 4);
    EXPECT_EQ(placed[3][1].first_layer, 14);
    expect_whole(placed, 16);
}

TEST(StageTable, TakesTheEmbeddingAndTheLossOutOfTheFirstAndLastVirtualStage) {
    // 14 + 2 = 16 over 2 ranks x 2: 4 a stage, 3 on the first and on the last.
    ParallelLayout layout = stages(2, 2);
    layout.account_for_embedding_in_pipeline_split = true;
    layout.account_for_loss_in_pipeline_split = true;
    const StageTable placed = table(layout, 14);
    EXPECT_EQ(layers_of_chunks(placed, 0), (Counts{3, 4}));
    EXPECT_EQ(layers_of_chunks(placed, 1), (Counts{4, 3}));
    expect_whole(placed, 14);
}

TEST(StageTable, DividesGivenEndsOverTheirVirtualStages) {
    // First rank 4, last 8, the two between (24 - 12) / 2 = 6 each; halves of them on each of two virtual stages.
    ParallelLayout layout = stages(4, 2);
    layout.decoder_first_pipeline_num_layers = 4;
    layout.decoder_last_pipeline_num_layers = 8;
    const StageTable placed = table(layout, 24);
    EXPECT_EQ(layers_of_chunks(placed, 0), (Counts{2, 2}));
    EXPECT_EQ(layers_of_chunks(placed, 1), (Counts{3, 3}));
    EXPECT_EQ(layers_of_chunks(placed, 3), (Counts{4, 4}));
    expect_whole(placed, 24);
    layout.decoder_first_pipeline_num_layers = 3;
    layout.decoder_last_pipeline_num_layers = 9;
    EXPECT_EQ(reason(layout, 24), "the 3 layers of a pipeline rank do not divide over 2 virtual stages");
}

TEST(StageTable, RefusesLayersThatDoNotDivideOverVirtualStages) {
    EXPECT_EQ(reason(stages(2, 3), 8), "the 4 layers of a pipeline rank do not divide over 3 virtual stages");
}

TEST(StageTable, LetsTheLossBeAloneOnItsRank) {
    // 1 + 1 = 2 over 2 ranks: one each; the loss takes the only one of the last rank.
    ParallelLayout layout = stages(2);
    layout.account_for_loss_in_pipeline_split = true;
    EXPECT_EQ(layers_per_rank(table(layout, 1)), (Counts{1, 0}));
}

TEST(StageTable, RefusesPipelinesWithoutStages) {
    EXPECT_EQ(reason(stages(0), 4), "a pipeline has at least one stage");
    EXPECT_EQ(reason(stages(1, 0), 4), "a pipeline has at least one stage");
}

TEST(StageTable, TakesALayoutStringLiterally) {
    // 2 ranks x 4: stages Ettt | tt | tt | tt | tt | tt | tt | L in the order in which a microbatch passes; the even
    // ones are rank 0's.
    const StageTable placed = table(lettered("Et*3|(tt|)*6L", 2, 4), 15);
    EXPECT_EQ(layers_of_chunks(placed, 0), (Counts{3, 2, 2, 2}));
    EXPECT_EQ(layers_of_chunks(placed, 1), (Counts{2, 2, 2, 0}));
    EXPECT_TRUE(placed[0][0].embedding);
    EXPECT_TRUE(placed[3][1].loss);
    EXPECT_EQ(placed[3][1].mtp_layers, 0);
    EXPECT_EQ(layers_per_rank(placed), (Counts{9, 6}));
    expect_whole(placed, 15);
}

TEST(StageTable, PutsMultiTokenPredictionLayersWhereTheStringDoes) {
    const StageTable placed = table(lettered("Et*3|(tt|)*6mL", 2, 4), 15, 1);
    EXPECT_EQ(placed[3][1], (StageContents{.first_layer = 15, .layers = 0, .mtp_layers = 1, .loss = true}));
    expect_whole(placed, 15);
    // DeepSeek-V3 on 16 ranks x 2: Ettt, 29 stages of 2, m alone, L alone: 3 + 58 = 61 layers on 32 stages.
    const StageTable deepseek = table(lettered("Et*3|(tt|)*29m|L", 16, 2), 61, 1);
    EXPECT_EQ(deepseek[1][14].mtp_layers, 1);
    EXPECT_FALSE(deepseek[1][14].loss);
    EXPECT_TRUE(deepseek[1][15].loss);
    expect_whole(deepseek, 61);
}

TEST(StageTable, RefusesLettersThatMakeNoPipelineOfTheModel) {
    EXPECT_EQ(reason(lettered("Et|t|tL", 2, 2), 3),
              "the layout has 3 stages, expected 4 (pipeline ranks x virtual stages)");
    EXPECT_EQ(reason(lettered("tE|tL", 2, 1), 2), "the stage 'tE' is not in the order E, t, m, L");
    EXPECT_EQ(reason(lettered("t|EtL", 2, 1), 2), "the embedding (E) is not exactly once, on the first stage");
    EXPECT_EQ(reason(lettered("Et|EtL", 2, 1), 2), "the embedding (E) is not exactly once, on the first stage");
    EXPECT_EQ(reason(lettered("EtL|t", 2, 1), 2), "the loss (L) is not exactly once, on the last stage");
    EXPECT_EQ(reason(lettered("Et|t", 2, 1), 2), "the loss (L) is not exactly once, on the last stage");
    EXPECT_EQ(reason(lettered("Et|tL", 2, 1), 3), "the layout places 2 layers, the model has 3");
    EXPECT_EQ(reason(lettered("Et|tmL", 2, 1), 2),
              "the layout places 1 multi-token-prediction layers, the model has 0");
    EXPECT_EQ(reason(lettered("Et|tL", 2, 1), 2, 1),
              "the layout places 0 multi-token-prediction layers, the model has 1");
}

TEST(StageTable, IsOursToGetRightWhereItIsKnownToExist) {
    EXPECT_EQ(stages_of(stages(2), model_of(4)).front().size(), 2U);
    EXPECT_THROW(stages_of(stages(3), model_of(4)), std::logic_error);
}

Letters letters(const std::string& layout) { return std::get<Letters>(parse_stage_letters(layout)); }
std::string fault(const std::string& layout) {
    const auto parsed = parse_stage_letters(layout);
    const auto* no = std::get_if<NoStages>(&parsed);
    return no != nullptr ? no->reason : "none";
}

TEST(StageLetters, ExpandRepetitionsAndGroups) {
    EXPECT_EQ(letters("Et|tL"), (Letters{"Et", "tL"}));
    EXPECT_EQ(letters("E t*2, | (t|)*2 L"), (Letters{"Ett", "t", "t", "L"}));
    EXPECT_EQ(letters("E|((t*2|)*2t|)*2L"), (Letters{"E", "tt", "tt", "t", "tt", "tt", "t", "L"}));
    EXPECT_EQ(letters("Et*10|L"), (Letters{"Etttttttttt", "L"}));
    EXPECT_EQ(letters("Et*0||L"), (Letters{"E", "", "L"}));
}

TEST(StageLetters, SayWhatIsWrongWithThem) {
    EXPECT_EQ(fault("Ex|L"), "the letter 'x'; stages are written with E, t, m, L, |, (), *");
    // Two bytes, neither of which is UTF-8 alone.
    EXPECT_EQ(fault("E\u00e9|L"), "the letter '?'; stages are written with E, t, m, L, |, (), *");
    EXPECT_EQ(fault("E(t|L"), "a '(' without its ')'");
    EXPECT_EQ(fault("Et)|L"), "a ')' without its '('");
    EXPECT_EQ(fault("Et*|L"), "a '*' without the number of times");
    EXPECT_EQ(fault("Et*1000001|L"), "more than a million letters");
    EXPECT_EQ(fault("Et*600000(t)*600000|L"), "more than a million letters");
    EXPECT_EQ(fault("Et*99999999999999999999|L"), "more than a million letters");
    EXPECT_EQ(fault("E" + std::string(60, '(') + "t" + std::string(60, ')') + "|L"), "groups inside groups, too deep");
}

}  // namespace
}  // namespace stowage::types
