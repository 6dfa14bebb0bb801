/// A peer: messages of 8 bytes through Boost.Interprocess's message_queue, on command. Conversation and answers as in
/// bench/peers/queue_words.py.
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <boost/interprocess/ipc/message_queue.hpp>
#include <cstdint>
#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kCapacity = 1024;
constexpr int kProducerShift = 48;
constexpr std::size_t kMostRanks = 64;

struct Work {
  int pairs = 1;
  int messages = 1;
  int warmups = 0;
  int iterations = 0;
};

struct Shared {
  pthread_barrier_t barrier;
  std::uint64_t sums[kMostRanks];
  std::int64_t times[];  ///< By rank, by iteration: enter, exit.
};

std::int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// A queue without a name: it goes with the last process that has it.
class WordQueue {
 public:
  explicit WordQueue(const std::string& name)
      : name_(name + std::to_string(getpid())),
        queue_(boost::interprocess::create_only, name_.c_str(), kCapacity, sizeof(std::uint64_t)) {
    boost::interprocess::message_queue::remove(name_.c_str());
  }
  void put(std::uint64_t word) { queue_.send(&word, sizeof word, 0); }
  std::uint64_t get() {
    std::uint64_t word = 0;
    boost::interprocess::message_queue::size_type bytes = 0;
    unsigned priority = 0;
    queue_.receive(&word, sizeof word, bytes, priority);
    return word;
  }

 private:
  std::string name_;
  boost::interprocess::message_queue queue_;
};

/// Forks the ranks, waits for their end, and returns the answer.
std::string run_ranks(int ranks, const Work& work, const std::function<void(int, Shared&)>& run) {
  const std::size_t bytes = sizeof(Shared) + 2 * sizeof(std::int64_t) * static_cast<std::size_t>(ranks) *
                                                 static_cast<std::size_t>(work.iterations);
  auto* const shared =
      static_cast<Shared*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, static_cast<unsigned>(ranks));
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    pids.push_back(fork());
    if (pids.back() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      run(rank, *shared);
      _exit(0);
    } catch (const std::exception& error) {
      std::cerr << "boost_queue_peer: " << error.what() << std::endl;
      _exit(1);
    }
  }
  bool is_fine = true;
  for (int status = 0; wait(&status) > 0;) {
    if (status == 0 || !is_fine) continue;
    is_fine = false;  // The others would wait for it without end.
    for (const pid_t pid : pids)
      if (pid > 0) kill(pid, SIGKILL);
  }
  if (!is_fine) throw std::runtime_error("a rank failed; its message is above");
  std::uint64_t sum = 0;
  for (int rank = 0; rank < ranks; ++rank) sum += shared->sums[rank];
  if (sum != 0) throw std::runtime_error("a message was lost or changed");
  std::ostringstream answer;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const int exit : {0, 1}) {
      answer << (exit == 1 ? "], \"exit\": [" : rank == 0 ? "{\"ranks\": [{\"enter\": [" : "]}, {\"enter\": [");
      for (int i = 0; i < work.iterations; ++i)
        answer << (i == 0 ? "" : ", ") << shared->times[2 * (rank * work.iterations + i) + exit];
    }
  }
  munmap(shared, bytes);
  return answer.str() + "]}]}";
}

void record(Shared& shared, const Work& work, int rank, int i, std::int64_t enter) {
  if (i < 0) return;
  std::int64_t* const times = shared.times + 2 * (rank * work.iterations + i);
  times[0] = enter;
  times[1] = now_ns();
}

std::string run_flow(const Work& work) {
  WordQueue queue("boost_queue_peer-");
  return run_ranks(2 * work.pairs, work, [&](int rank, Shared& shared) {
    std::uint64_t number = 0;
    std::uint64_t sum = 0;
    for (int i = -work.warmups; i < work.iterations; ++i) {
      std::uint64_t last[kMostRanks] = {};
      pthread_barrier_wait(&shared.barrier);
      const std::int64_t enter = now_ns();
      for (int message = 0; message < work.messages; ++message) {
        if (rank < work.pairs) {
          const std::uint64_t word = static_cast<std::uint64_t>(rank) << kProducerShift | ++number;
          queue.put(word);
          sum += word;
        } else {
          const std::uint64_t word = queue.get();
          std::uint64_t& before = last[word >> kProducerShift];
          if (word <= before) throw std::runtime_error("a message came twice or out of order");
          before = word;
          sum -= word;
        }
      }
      record(shared, work, rank, i, enter);
    }
    shared.sums[rank] = sum;
  });
}

std::string run_round_trip(const Work& work) {
  WordQueue there("boost_queue_peer-there-");
  WordQueue back("boost_queue_peer-back-");
  return run_ranks(2, work, [&](int rank, Shared& shared) {
    pthread_barrier_wait(&shared.barrier);
    for (int i = -work.warmups; i < work.iterations; ++i) {
      const auto word = static_cast<std::uint64_t>(i);
      const std::int64_t enter = now_ns();
      std::uint64_t answer = 0;
      if (rank == 0) {
        there.put(word);
        answer = back.get();
      } else {
        answer = there.get() + 1;
        back.put(answer);
      }
      record(shared, work, rank, i, enter);
      if (answer != word + 1) throw std::runtime_error("a wrong answer came back");
    }
  });
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    Work work;
    words >> command >> work.pairs >> work.messages >> work.warmups >> work.iterations;
    try {
      std::cout << (command == "flow" ? run_flow(work) : run_round_trip(work)) << std::endl;
    } catch (const std::exception& error) {
      std::cout << "{\"error\": \"" << error.what() << "\"}" << std::endl;
    }
  }
}
