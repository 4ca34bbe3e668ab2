// Command councild is an LLM council: an HTTP daemon and its command line. It only passes the process to package
// cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/councild/councild/internal/cli"
)

// version is the version of a release. The linker sets it.
var version string

func main() { os.Exit(run(cli.IO{})) }

// run runs one command with the arguments and streams of the process. The first signal ends the context of the
// command, so that it stops in good order. A second signal ends the process at once.
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
