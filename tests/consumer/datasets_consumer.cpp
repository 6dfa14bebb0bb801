#include <cstdio>
#include <fstream>

#include "retinue/datasets.h"

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  std::ofstream("numbers.csv") << "a,b\n1,2\n3,4\n5,6\n";
  const retinue::CsvTable table = retinue::read_csv("numbers.csv");
  std::remove("numbers.csv");
  try {
    retinue::read_image("no.png");
    return 1;
  } catch (const retinue::DataError&) {
    // It links libjpeg and libpng.
  }
  const auto loader = retinue::make_data_loader(retinue::TensorDataset(table.column("a"), table.column("b")),
                                                {.batch_size = 2, .workers = 1});
  float sum = 0;
  for (auto& batch : *loader) sum += batch.data.sum().item<float>() * 10 + batch.target.sum().item<float>();
  if (sum != 102) return 1;
  std::printf("consumer: ok\n");
}
