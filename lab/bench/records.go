package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

// read plays R2 or R3 on a file of records.
func read(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("read", flag.ContinueOnError)
	name := flags.String("file", "", "of records")
	raw := flags.Bool("raw", false, "R3: add up the bytes, in place of encoding/json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	f, err := os.Open(*name)
	if err != nil {
		return err
	}
	defer f.Close()
	if *raw {
		sum, buffer := 0, make([]byte, 1<<20)
		for {
			n, err := f.Read(buffer)
			for _, c := range buffer[:n] {
				sum += int(c)
			}
			if errors.Is(err, io.EOF) {
				fmt.Println(sum)
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	n, d := 0, json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	for {
		var record struct {
			SessionID string    `json:"session_id"`
			Timestamp time.Time `json:"timestamp"`
			Consent   int       `json:"consent_level"`
			Reviewer  string    `json:"reviewer_id"`
			Model     string    `json:"model_id"`
			Position  int       `json:"position"`
			Length    *int      `json:"response_length_chars"`
			Score     *float64  `json:"score_value"`
			Scale     string    `json:"score_scale"`
			Version   string    `json:"council_config_version"`
			Own       bool      `json:"own"`
			Shown     int       `json:"n_shown"`
			Rank      *float64  `json:"rank_value"`
			Ballot    string    `json:"ballot_status"`
			Provider  struct {
				Reviewer  string `json:"reviewer"`
				Candidate string `json:"candidate"`
			} `json:"provider"`
		}
		if err := d.Decode(&record); errors.Is(err, io.EOF) {
			fmt.Println(n)
			return nil
		} else if err != nil {
			return err
		}
		n++
	}
}

// multiply writes n records to a new file. It repeats the records of the source. Each repetition has other session ids,
// and is one day earlier. The newest records come last.
func multiply(source, target string, n int) (err error) {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	lines := bytes.SplitAfter(bytes.TrimSpace(text), []byte("\n"))
	lines[len(lines)-1] = append(lines[len(lines)-1], '\n')
	f, err := os.Create(target)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	if n < len(lines) { // 12 records are a session
		lines = lines[len(lines)-n/12*12:]
	}
	copies := (n + len(lines) - 1) / len(lines)
	for c := copies - 1; c >= 0; c-- {
		for _, line := range lines {
			id := bytes.Index(line, []byte(`"session_id":"`)) + len(`"session_id":"`)
			at := bytes.Index(line, []byte(`"timestamp":"`)) + len(`"timestamp":"`)
			end := bytes.IndexByte(line[at:], '"')
			when, err := time.Parse(time.RFC3339Nano, string(line[at:at+end]))
			if err != nil {
				return err
			}
			_, _ = out.Write(line[:id]) // errors come with Flush
			fmt.Fprintf(out, "%08x", c)
			_, _ = out.Write(line[id+8 : at])
			_, _ = out.WriteString(when.AddDate(0, 0, -c).Format(time.RFC3339Nano))
			_, _ = out.Write(line[at+end:])
		}
	}
	return out.Flush()
}
