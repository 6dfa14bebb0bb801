#pragma once

namespace retinue::python {

/// Runs Python's handlers of the signals that came, which Python does on its main thread only. Returns whether one of
/// them raised an exception: the wait is to end. SIGINT's default handler raises KeyboardInterrupt. Python raises the
/// exception again as soon as it runs the program's code, with the error of the wait as its context.
bool is_interrupted_by_handler();

}  // namespace retinue::python
