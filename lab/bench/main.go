// Command bench measures councild against reference programs. Each program is a process of its own.
//
// R0 sends the HTTP requests of sessions with net/http and with bodies that it made before. R1 sends the same
// requests with go-openai and a tuned pool of idle connections. It shows the cost of a program that does nothing
// but call the models. R2 reads records with encoding/json, and R3 adds up the bytes of their file. The rounds of
// all programs are interleaved, because the speed of a shared machine can halve from one minute to the next. So
// only ratios within one run mean anything.
//
// A session has four members: four answers of 2.0 KB to a prompt of 400 bytes, four reviews of 1.2 KB and one
// synthesis of 2.0 KB. README.md says what each figure is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `Usage: bench COMMAND [flags]

  compare    measure the figures T1 to T16, and print them as a table
  against    print two results of compare beside each other: OLDER.json NEWER.json
  pair       measure two binaries in turns, T1, T2, T5 and T16: OLD NEW; exit with 1 if NEW takes over 5 % more
  growth     measure how cost grows with clients, members, answers, records and watchers: CSV
  plot       draw that CSV as SVG files
  provider, reference, load, read
             the processes that compare and growth start
`

type command func(ctx context.Context, args []string) error

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]command{
		"compare": compare, "against": against, "pair": pair, "growth": growth, "plot": plot,
		"provider": provider, "reference": reference, "load": load, "read": read,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("no such command")
	}
	return commands[args[0]](ctx, args[1:])
}
