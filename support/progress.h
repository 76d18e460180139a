// How far a long computation is, for a listener that shows it.
#pragma once

#include <string>

namespace kvopt {

/// Receives how far a computation is. One piece of work at a time.
class ProgressListener {
public:
  virtual ~ProgressListener() = default;
  /// Work begins; `what` says what is done: "comparing". False where other work has not ended: this
  /// work is a part of it and reports nothing.
  virtual bool begin(const std::string& what) = 0;
  /// `done` of `total` units of the work that began are done; 0 for a number that is not known.
  virtual void report(double done, double total) = 0;
  /// Removes what is shown, until the next report: something else is printed.
  virtual void hide() = 0;
  virtual void end() = 0;
};

/// A piece of work, which ends when this object is destroyed. Units of work should take about
/// equally long. Without a listener nothing happens.
class Progress {
public:
  Progress(ProgressListener* listener, const std::string& what);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// So many more units are to be done.
  void expect(double units);
  /// So many more units are done.
  void advance(double units) { advanceTo(done + units); }
  /// So many units are done, unless there were more before.
  void advanceTo(double units);
  /// All units that were expected are done, also those that were left out.
  void complete() { advanceTo(total); }
  void hide();

private:
  ProgressListener* listener; ///< null where nothing is reported
  double done = 0;
  double total = 0;
};

} // namespace kvopt
