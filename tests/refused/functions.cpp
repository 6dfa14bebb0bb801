// Functions that no other process can call, and arguments that they don't take.
#include <string>

#include "retinue/launch/spawn.h"

class Model {
 public:
  void train(retinue::RankContext& context);
};
void without_rank(double rate);
void changes(int rank, double& rate);
void work(retinue::RankContext& context, int value);

void refused() {
  retinue::spawn<[](auto&) {}>({.nprocs = 2});       // refused: whose parameters are not `auto`
  retinue::spawn<&Model::train>({.nprocs = 2});      // refused: a member function has no object in another process
  retinue::spawn<without_rank>({.nprocs = 2}, 0.1);  // refused: must be retinue::RankContext& or int rank
  retinue::spawn<changes>({.nprocs = 2}, 0.1);       // refused: what the function changes there would be lost
  retinue::spawn<work>({.nprocs = 2});               // refused: pass all of the function's arguments
  retinue::spawn<work>({.nprocs = 2}, "7");          // refused: cannot be converted to the function's parameter
}
