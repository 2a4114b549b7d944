#pragma once

#include "planner/search/job.hpp"
#include "reports/json.hpp"

namespace stowage::reports {

/// The offload groups of each kind of layer: module, tensors with shapes and bytes. For one microbatch on one rank,
/// with every tensor eligible; kinds without a group are left out.
Json tensor_groups_json(const search::Job& job);

}  // namespace stowage::reports
