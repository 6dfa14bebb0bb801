/// Asynchronous actor-critic: actors balance poles on carts and send what came of it through a queue. The program
/// learns from that, and changes the parameters in shared memory, where the actors read them again at every step.
///
/// Exit code 0: the learned policy balances poles as long as asked for. 1: anything else.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "retinue/ipc/queue.h"
#include "retinue/launch/spawn.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"

using retinue::Queue;
using retinue::RankContext;
using torch::Tensor;
using namespace std::chrono_literals;

namespace {

/// A pole that stands on a cart by a joint; pushes to the left or to the right, 50 a second, are to keep it upright and
/// the cart on its track. Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning
/// control problems" (1983), without friction, in the equations of Florian, "Correct equations for the dynamics of the
/// cart-pole system" (2007). Metres, seconds, kilograms, radians.
class CartPole {
 public:
  static constexpr int kMostPushes = 500;

  explicit CartPole(std::mt19937& random) {
    std::uniform_real_distribution<float> near_zero(-0.05F, 0.05F);
    for (float& value : state_) value = near_zero(random);
  }

  void push(bool to_the_right) {
    constexpr float kGravity = 9.8F;
    constexpr float kCartMass = 1.0F;
    constexpr float kPoleMass = 0.1F;
    constexpr float kMass = kCartMass + kPoleMass;
    constexpr float kHalfLength = 0.5F;
    constexpr float kForce = 10.0F;
    constexpr float kTime = 0.02F;
    auto& [position, speed, angle, spin] = state_;
    const float sine = std::sin(angle);
    const float cosine = std::cos(angle);
    const float force = (to_the_right ? kForce : -kForce) + kPoleMass * kHalfLength * spin * spin * sine;
    const float spin_change = (kGravity * sine - cosine * force / kMass) /
                              (kHalfLength * (4.0F / 3.0F - kPoleMass * cosine * cosine / kMass));
    const float speed_change = (force - kPoleMass * kHalfLength * spin_change * cosine) / kMass;
    position += kTime * speed;
    speed += kTime * speed_change;
    angle += kTime * spin;
    spin += kTime * spin_change;
    ++pushes_;
  }

  bool has_failed() const {
    return std::abs(state_[0]) > 2.4F || std::abs(state_[2]) > 12 * std::numbers::pi_v<float> / 180;
  }
  bool has_ended() const { return has_failed() || pushes_ == kMostPushes; }
  int pushes() const { return pushes_; }
  /// Position, speed, angle and its speed.
  const std::array<float, 4>& state() const { return state_; }

 private:
  std::array<float, 4> state_;
  int pushes_ = 0;
};

std::vector<CartPole> some_poles(int count, std::mt19937& random) {
  std::vector<CartPole> poles;
  for (int i = 0; i < count; ++i) poles.emplace_back(random);
  return poles;
}

/// A row for each, in numbers of about one.
Tensor states_of(const std::vector<CartPole>& poles) {
  static const Tensor scale = torch::tensor({0.4F, 0.5F, 5.0F, 0.5F});
  Tensor states = torch::empty({static_cast<std::int64_t>(poles.size()), 4});
  float* next = states.data_ptr<float>();
  for (const CartPole& pole : poles) next = std::copy(pole.state().begin(), pole.state().end(), next);
  return states * scale;
}

/// Policy and critic.
struct NetImpl : torch::nn::Module {
  torch::nn::Sequential policy{torch::nn::Linear(4, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1)};
  torch::nn::Sequential critic{torch::nn::Linear(4, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1)};
  Tensor updates = torch::zeros({}, torch::kInt64);  ///< How often the parameters were changed: shared as they are.

  NetImpl() {
    register_module("policy", policy);
    register_module("critic", critic);
    register_buffer("updates", updates);
  }
  /// The log of a push's odds to go to the right.
  Tensor odds(const Tensor& states) { return policy->forward(states).squeeze(-1); }
  /// What is to come: -1 for a failure now, the nearer to 0 the later it is.
  Tensor value(const Tensor& states) { return critic->forward(states).squeeze(-1); }
};
TORCH_MODULE(Net);

/// The log of the probability of these pushes.
Tensor log_chance(const Tensor& odds, const Tensor& pushes) {
  return torch::log_sigmoid(odds * (2 * pushes - 1));
}

constexpr int kSteps = 32;
constexpr int kPoles = 16;
constexpr float kDiscount = 0.99F;

// [trajectory]
/// What an actor saw of its poles, one row for each step.
struct Trajectory {
  Tensor states = torch::empty({kSteps + 1, kPoles, 4});
  Tensor pushes = torch::empty({kSteps, kPoles});       ///< 1 to the right, 0 to the left.
  Tensor log_chances = torch::empty({kSteps, kPoles});  ///< Of these pushes, under the parameters of that moment.
  Tensor rewards = torch::empty({kSteps, kPoles});      ///< -1 for a failure, else 0.
  Tensor discounts = torch::empty({kSteps, kPoles});    ///< 0 where another pole begins.
  std::int64_t updates = 0;                             ///< Of the parameters, at its start.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(states, pushes, log_chances, rewards, discounts, updates);
  }
};
// [/trajectory]

void push_all(std::vector<CartPole>& poles, std::mt19937& random, Trajectory& trajectory, int step) {
  const float* pushes = trajectory.pushes[step].const_data_ptr<float>();
  float* rewards = trajectory.rewards[step].data_ptr<float>();
  float* discounts = trajectory.discounts[step].data_ptr<float>();
  for (std::size_t i = 0; i < poles.size(); ++i) {
    poles[i].push(pushes[i] > 0);
    rewards[i] = poles[i].has_failed() ? -1.0F : 0.0F;
    discounts[i] = poles[i].has_ended() ? 0.0F : kDiscount;
    if (poles[i].has_ended()) poles[i] = CartPole(random);
  }
}

// [actor]
/// Acts by the shared parameters, as they are at each step, until the learner closes the queue.
void act(RankContext& context, Net net, Queue<Trajectory> trajectories, std::uint32_t seed) {
  const std::uint32_t own_seed = seed + 1 + static_cast<std::uint32_t>(context.rank());
  torch::set_num_threads(1);
  torch::manual_seed(own_seed);
  std::mt19937 random(own_seed);
  const torch::NoGradGuard no_grad;
  std::vector<CartPole> poles = some_poles(kPoles, random);
  try {
    for (;;) {
      Trajectory seen;
      seen.updates = net->updates.item<std::int64_t>();
      for (int step = 0; step < kSteps; ++step) {
        seen.states[step] = states_of(poles);
        const Tensor odds = net->odds(seen.states[step]);
        seen.pushes[step] = torch::bernoulli(torch::sigmoid(odds));
        seen.log_chances[step] = log_chance(odds, seen.pushes[step]);
        push_all(poles, random, seen, step);
      }
      seen.states[kSteps] = states_of(poles);
      trajectories.put(seen);  // Handles only. It waits while the learner has enough.
    }
  } catch (const retinue::Closed&) {
    // The learner is done.
  }
}
// [/actor]

// [v_trace]
struct Targets {
  Tensor values;
  Tensor advantages;
};

/// What the present policy would have got, from what an older one did: V-trace, Espeholt et al., "IMPALA" (2018).
/// `ratios`: the pushes' probabilities now, by those when they were made.
Targets v_trace(const Trajectory& seen, const Tensor& values, const Tensor& ratios) {
  const Tensor weights = ratios.clamp_max(1);
  Tensor targets = values.clone();
  Tensor ahead = torch::zeros({values.size(1)});
  for (int step = kSteps - 1; step >= 0; --step) {
    const Tensor surprise =
        weights[step] * (seen.rewards[step] + seen.discounts[step] * values[step + 1] - values[step]);
    ahead = surprise + seen.discounts[step] * weights[step] * ahead;
    targets[step] += ahead;
  }
  const Tensor later = targets.slice(0, 1, kSteps + 1);
  targets = targets.slice(0, 0, kSteps);
  return {targets, weights * (seen.rewards + seen.discounts * later - values.slice(0, 0, kSteps))};
}
// [/v_trace]

/// Of policy and critic, and against a policy that is sure of itself too early.
Tensor loss_of(Net& net, const Trajectory& seen) {
  constexpr double kEntropyWeight = 0.02;
  const Tensor odds = net->odds(seen.states.slice(0, 0, kSteps));
  const Tensor values = net->value(seen.states);
  const Tensor log_chances = log_chance(odds, seen.pushes);
  const Tensor ratios = (log_chances - seen.log_chances).exp();
  const Targets targets = v_trace(seen, values.detach(), ratios.detach());
  const Tensor gain = (log_chances * targets.advantages).mean();
  const Tensor error = (values.slice(0, 0, kSteps) - targets.values).square().mean();
  const Tensor entropy = (torch::nn::functional::softplus(odds) - odds * torch::sigmoid(odds)).mean();
  return error / 2 - gain - kEntropyWeight * entropy;
}

/// For how many pushes, in the mean, the policy keeps a pole up when it always takes the likelier push.
double mean_pushes(Net& net, std::uint32_t seed) {
  constexpr int kEpisodes = 50;
  const torch::NoGradGuard no_grad;
  std::mt19937 random(seed);
  std::vector<CartPole> poles = some_poles(kEpisodes, random);
  for (int step = 0; step < CartPole::kMostPushes; ++step) {
    const Tensor odds = net->odds(states_of(poles));
    for (std::size_t i = 0; i < poles.size(); ++i)
      if (!poles[i].has_ended()) poles[i].push(odds.const_data_ptr<float>()[i] > 0);
  }
  double sum = 0;
  for (const CartPole& pole : poles) sum += pole.pushes();
  return sum / kEpisodes;
}

struct Flags {
  int nprocs = 2;
  int updates = 2000;
  double lr = 0.01;
  double min_pushes = 475;
  std::uint32_t seed = 0;
};

Trajectory next_of(Queue<Trajectory>& trajectories, retinue::ProcessContext& actors) {
  for (int i = 0; i < 300; ++i) {
    if (auto seen = trajectories.get(200ms)) return *std::move(seen);
    actors.join(0ms);  // Throws what went wrong there, if anything did.
  }
  throw std::runtime_error("no trajectory came within 60 s");
}

int run(const Flags& flags) {
  constexpr int kBatch = 2;        // Trajectories for one step of the optimizer.
  constexpr int kEvaluation = 25;  // Steps from one evaluation to the next.
  torch::set_num_threads(1);       // A net as small as this gains nothing by more.
  torch::manual_seed(flags.seed);
  // [learner]
  Net net;
  retinue::share_memory_(*net);
  Queue<Trajectory> trajectories({.capacity = static_cast<std::size_t>(flags.nprocs)});
  retinue::ProcessContext actors =
      retinue::spawn<act>({.nprocs = flags.nprocs, .join = false, .daemon = true}, net, trajectories, flags.seed);
  torch::optim::Adam optimizer(net->parameters(), flags.lr);
  std::int64_t update = 0;
  double pushes = 0;
  double lag = 0;
  while (update < flags.updates && pushes < flags.min_pushes) {
    optimizer.zero_grad();
    for (int i = 0; i < kBatch; ++i) {
      const Trajectory seen = next_of(trajectories, actors);
      lag += static_cast<double>(update - seen.updates) / kBatch;
      (loss_of(net, seen) / kBatch).backward();
    }
    torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
    optimizer.step();  // Into the parameters that the actors read.
    net->updates.fill_(++update);
    if (update % kEvaluation != 0) continue;
    pushes = mean_pushes(net, flags.seed);
    std::printf("updates %4lld  pushes %5.1f\n", static_cast<long long>(update), pushes);
  }
  trajectories.close();  // The actors' put() throws Closed.
  actors.join();
  // [/learner]
  const bool is_good = pushes >= flags.min_pushes;
  std::printf("actor_critic: %s pushes=%.1f updates=%lld actors=%d updates_behind=%.1f\n", is_good ? "ok" : "failed",
              pushes, static_cast<long long>(update), flags.nprocs, lag / static_cast<double>(update));
  return is_good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  CLI::App app("Learns to balance a pole on a cart, with asynchronous actors and one learner.");
  Flags flags;
  app.add_option("--nprocs", flags.nprocs, "Actors")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--updates", flags.updates, "Largest number of optimizer steps")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", flags.lr, "Learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--min-pushes", flags.min_pushes,
                 "Pushes (at most 500) for which the pole must stay up, as the mean of 50 episodes")
      ->check(CLI::Range(1.0, 1.0 * CartPole::kMostPushes))
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "Seed of parameters, actors and poles")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return run(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "actor_critic: failed: %s\n", error.what());
    return 1;
  }
}
