// Command councild is an LLM council: an HTTP daemon and its command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/councild/councild/internal/cli"
)

// version is set by the linker for releases.
var version string

func main() { os.Exit(run(cli.IO{})) }

// run runs one command, with the arguments and streams of the process. The first signal ends its context, and so asks
// it to stop in good order; a second one does not wait for that.
func run(std cli.IO) int {
	std.Args = os.Args[1:]
	std.Stdin = os.Stdin
	std.Stdout = os.Stdout
	std.Stderr = os.Stderr
	std.Version = version
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan int, 1)
	go func() {
		done <- cli.Main(ctx, std)
	}()
	for {
		select {
		case code := <-done:
			return code
		case <-signals:
			if ctx.Err() != nil {
				return cli.ExitInterrupted
			}
			cancel()
		}
	}
}
