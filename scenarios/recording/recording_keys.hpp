#pragma once

// The names of columns and kinds in a recording's file, for its writer and its reader.

#include <array>
#include <cstddef>
#include <utility>

#include "scenarios/recording/event_table.hpp"
#include "scenarios/types/enum_names.hpp"

namespace stowage::recording {

template <class Table, std::size_t N>
using Keys = std::array<std::pair<const char*, Column Table::*>, N>;

inline constexpr Keys<EventTable, 6> kEventColumns{{{"class", &EventTable::event_class},
                                                    {"operation", &EventTable::operation},
                                                    {"layer", &EventTable::layer},
                                                    {"microbatch", &EventTable::microbatch},
                                                    {"gap_ns", &EventTable::gap_ns},
                                                    {"duration_ns", &EventTable::duration_ns}}};

inline constexpr Keys<GroupTable, 5> kGroupColumns{{{"module", &GroupTable::module},
                                                    {"layer", &GroupTable::layer},
                                                    {"microbatch", &GroupTable::microbatch},
                                                    {"chunk", &GroupTable::chunk},
                                                    {"tensors", &GroupTable::tensors}}};

inline constexpr Keys<GroupTable, 7> kTensorColumns{{{"storage", &GroupTable::storage},
                                                     {"bytes", &GroupTable::bytes},
                                                     {"storage_bytes", &GroupTable::storage_bytes},
                                                     {"allocated_ns", &GroupTable::allocated_ns},
                                                     {"freed_ns", &GroupTable::freed_ns},
                                                     {"offloaded", &GroupTable::offloaded},
                                                     {"parameter", &GroupTable::parameter}}};

}  // namespace stowage::recording

template <>
struct stowage::types::EnumNames<stowage::recording::EventKind> {
    using Kind = stowage::recording::EventKind;
    static constexpr std::array<std::pair<Kind, std::string_view>, 5> values{
        {{Kind::kernel, "kernel"},
         {Kind::device_to_host, "device_to_host"},
         {Kind::host_to_device, "host_to_device"},
         {Kind::device_to_device, "device_to_device"},
         {Kind::memset, "memset"}}};
};
