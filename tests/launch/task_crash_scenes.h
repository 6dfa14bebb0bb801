#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "launch/tasks/task_client.h"
#include "os/testing/crash_point.h"
#include "support/fork_shared.h"

/// Tasks of all kinds, in task_crash_test.cpp.
namespace retinue::test {

/// What all processes of a test write down, in memory of their own.
struct Notes {
  std::atomic<int> runs[100];  ///< Of each task.
  std::atomic<int> torn;       ///< Arguments that were not as they were given.
  std::atomic<int> has_board;  ///< 1: the following are a board's blocks, which the giver holds.
  BlockHandle blocks[3];
};

inline Notes& notes() {
  static const ForkShared<Notes> page;
  return *page;
}
inline void forget_runs() {
  new (&notes()) Notes();
}

inline void leave_board(const TaskBoard& board) {
  const TaskBoardBlocks blocks = board.blocks();
  notes().blocks[0] = blocks.records.handle();
  notes().blocks[1] = blocks.tasks.handle();
  notes().blocks[2] = blocks.done.handle();
  notes().has_board = 1;
}
/// The board that the dead left, if there is one; its blocks are held from here on.
inline std::optional<TaskBoardBlocks> left_board(const std::shared_ptr<JobMemory>& memory) {
  if (notes().has_board == 0) return std::nullopt;
  return TaskBoardBlocks{SharedBlock::hold(memory, notes().blocks[0]), SharedBlock::hold(memory, notes().blocks[1]),
                         SharedBlock::hold(memory, notes().blocks[2])};
}

constexpr std::size_t kLong = 300;  ///< Numbers that do not fit a record.

inline void note_run(int id) {
  RETINUE_CRASH_POINT();
  ++notes().runs[id];
  RETINUE_CRASH_POINT();
}

inline int small(int id) {
  note_run(id);
  return 10 * id;
}
inline std::vector<int> large(const std::vector<int>& ids) {
  if (ids != std::vector<int>(kLong, ids.at(0))) ++notes().torn;
  note_run(ids.at(0));
  return std::vector<int>(kLong, 10 * ids.at(0));
}
inline SharedBlock block_with(int number) {
  SharedBlock block = SharedBlock::allocate(sizeof number);
  std::memcpy(block.data(), &number, sizeof number);
  return block;
}
inline int number_in(const SharedBlock& block) {
  int number = 0;
  std::memcpy(&number, block.data(), sizeof number);
  return number;
}
/// Arguments and result refer to blocks.
inline SharedBlock refer(const SharedBlock& block) {
  note_run(number_in(block));
  return block_with(10 * number_in(block));
}
inline int raise_error(int id) {
  note_run(id);
  throw std::out_of_range(std::to_string(10 * id));
}

using ResultText = std::string (*)(const detail::TaskPtr& task);

struct Given {
  int id;
  detail::TaskPtr task;
  ResultText result;  ///< 10 * id.
};

template <auto fn, class Argument>
Given give(detail::TaskClient& client, int id, const Argument& argument, ResultText result) {
  detail::Encoded encoded = detail::encode<fn, detail::EntryStyle::kProcess>(argument);
  return {id, detail::submit_task(client, detail::task_function<fn>(), std::move(encoded), {"give"}), result};
}
template <class Result>
Result value_of(const detail::TaskPtr& task) {
  return detail::task_value<Result>({&task, 1});
}

inline Given give_small(detail::TaskClient& client, int id) {
  return give<small>(client, id, id, [](const detail::TaskPtr& task) { return std::to_string(value_of<int>(task)); });
}

inline std::string large_result(const detail::TaskPtr& task) {
  const auto row = value_of<std::vector<int>>(task);
  return row == std::vector<int>(kLong, row.at(0)) ? std::to_string(row[0]) : "not whole";
}
inline std::string referred_result(const detail::TaskPtr& task) {
  return std::to_string(number_in(value_of<SharedBlock>(task)));
}
inline std::string raised_result(const detail::TaskPtr& task) {
  try {
    value_of<int>(task);
    return "nothing was raised";
  } catch (const ProcessRaisedException& error) {
    return error.outcome().message;
  }
}

/// One after the other, from `first_id` on.
inline std::vector<Given> give_each_kind(detail::TaskClient& client, int first_id) {
  int id = first_id;
  std::vector<Given> given;
  given.push_back(give<large>(client, id, std::vector<int>(kLong, id), large_result));
  given.push_back(give_small(client, ++id));
  ++id;
  given.push_back(give<refer>(client, id, block_with(id), referred_result));
  ++id;
  given.push_back(give<raise_error>(client, id, id, raised_result));
  return given;
}

/// Errors: ProcessExitedException if the task was lost.
inline void check_result(const Given& given) {
  EXPECT_EQ(given.result(given.task), std::to_string(10 * given.id)) << "task " << given.id;
}

}  // namespace retinue::test
