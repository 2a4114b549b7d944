# Installs into an empty prefix, then configures, builds and runs a project that knows nothing but that prefix.
# Its CMakeLists.txt is written here because every CMakeLists.txt below tests/ is a part of the test build.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE words ERROR_VARIABLE words)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nfailed with ${status}:\n${words}")
  endif()
  set(words "${words}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${work}/prefix ${work}/consumer)
run(${CMAKE_COMMAND} --install ${build} --prefix ${work}/prefix)

file(COPY ${source}/consumer.cpp DESTINATION ${work}/consumer)
file(WRITE ${work}/consumer/CMakeLists.txt [[
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
find_package(stowage 0.1 REQUIRED)
add_executable(consumer consumer.cpp)
target_link_libraries(consumer PRIVATE stowage::scenarios_types stowage::planner_layers)
# Whatever an exported library needs is found with it, also by a project that uses the highest of them.
target_link_libraries(consumer PRIVATE stowage::planner_search stowage::reports stowage::executor_core
  stowage::executor_errors stowage::executor_gemm_table stowage::profiler_core stowage::scenarios_reader)
]])
run(${CMAKE_COMMAND} -S ${work}/consumer -B ${work}/consumer/build -G ${generator}
  -D CMAKE_PREFIX_PATH=${work}/prefix -D CMAKE_CXX_COMPILER=${compiler})
run(${CMAKE_COMMAND} --build ${work}/consumer/build)
run(${work}/consumer/build/consumer)
if(NOT words STREQUAL "1572864 bytes\n")
  message(FATAL_ERROR "the consumer said '${words}'")
endif()
