#pragma once

// The simplest choice of policy `stowage`: what stays away longest leaves first.
//
// Tested by: tests/planner/program/stowage_policy_test.cpp.

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/offload_choice.hpp"

namespace stowage::program {

/// The bytes of one microbatch that a stage could move with these modules and this smallest size, all its virtual
/// stages together, without the layer whose backward comes first.
types::Bytes eligible_bytes(const layers::StageLayers& stage, const types::OffloadChoice& choice);

/// Groups of `choice.modules` from the stage's first layer on, in the order in which they start, until `bytes` of one
/// microbatch are reached; never those of the last layer of the last virtual stage, which would be back before they are
/// gone. Under graphs of layers the groups are spread evenly over the layers instead, small ones first: a graph ends no
/// sooner than the copies in it. Only what passes `choice.min_offloaded_tensor_size` counts. Result: every layer of the
/// stage by its number in the model; `reload_ahead` and `join_after` are as many groups as a layer has: a layer's time
/// for a layer's bytes.
types::FreeOffload choose_free(const layers::StageLayers& stage, const types::OffloadChoice& choice,
                               types::Bytes bytes);
/// The same until a fraction of eligible_bytes() is reached.
types::FreeOffload choose_free(const layers::StageLayers& stage, const types::OffloadChoice& choice, double fraction);

/// Adds another stage's layers to a choice, so that one choice serves all ranks of a pipeline; the larger distances
/// are kept.
void add_layers(types::FreeOffload& choice, const types::FreeOffload& other);

}  // namespace stowage::program
