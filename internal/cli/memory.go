package cli

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory keeps the process within the memory of its container: Go's memory limit
// becomes nine tenths of the limit of the control group, unless GOMEMLIMIT sets it. Where
// there is a limit, garbage may grow to four times of what is in use, unless GOGC says
// how far: that takes less processor time, and close to the limit it is collected earlier.
func limitMemory(log *slog.Logger) {
	limit, err := memlimit.Set()
	if err != nil {
		log.Warn("the memory limit of the container is not known; set GOMEMLIMIT", "error", err)
		return
	}
	if limit == math.MaxInt64 {
		return
	}
	gogc := os.Getenv("GOGC")
	if gogc == "" {
		debug.SetGCPercent(400)
		gogc = "400"
	}
	log.Info("memory is limited", "limit_bytes", limit, "gogc", gogc)
}
