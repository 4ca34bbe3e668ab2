package cli

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// limitMemory keeps the process within the memory of its container. It sets Go's memory limit to nine tenths of the
// container's limit, unless GOMEMLIMIT gives another limit. If there is a limit, it also sets GOGC to 400, unless GOGC
// is set, because the garbage collector then takes less processor time, and works harder only close to the limit.
func limitMemory(log *slog.Logger) {
	limit, err := memlimit.Set()
	if err != nil {
		log.Warn("the memory limit of the container is unknown; set GOMEMLIMIT", "error", err)
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
