package store

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
)

// maxLines is how many line numbers Verify gives for one reason in one file.
const maxLines = 10

// Part is what Verify found in one file of a store.
type Part struct {
	File     string // without directories
	Bytes    int64  // on disk
	Sessions int    // with a record
	Records  int
	Skipped  []Skip // by reason, in the order of the first line of each
	Err      error  // why the file, or the rest of it, could not be read; nil when it could
}

// Skip counts the lines of a file that were skipped for one reason.
type Skip struct {
	Reason Reason
	Count  int
	Lines  []int64 // the first of them, 1-based; at most ten
}

// Verify reads the store at path as ReadFile does, and returns what is in each of
// its files, the oldest first. A file that cannot be read does not hide the others.
func Verify(ctx context.Context, path string) ([]Part, error) {
	var all []Part
	for p, err := range parts(path) {
		if err != nil && p.name == "" {
			return nil, err
		}
		found := Part{File: filepath.Base(p.name), Err: err}
		if err != nil {
			all = append(all, found)
			continue
		}
		if info, err := p.Stat(); err == nil {
			found.Bytes = info.Size()
		}
		sessions := map[string]bool{}
		for record, err := range p.lines(ctx) {
			line, skipped := errors.AsType[*LineError](err)
			switch {
			case skipped:
				found.skip(line)
			case ctx.Err() != nil:
				return nil, err
			case err != nil:
				found.Err = err
			default:
				found.Records++
				sessions[record.SessionID] = true
			}
		}
		found.Sessions = len(sessions)
		all = append(all, found)
	}
	return all, nil
}

func (p *Part) skip(line *LineError) {
	i := slices.IndexFunc(p.Skipped, func(s Skip) bool { return s.Reason == line.Reason })
	if i < 0 {
		i = len(p.Skipped)
		p.Skipped = append(p.Skipped, Skip{Reason: line.Reason})
	}
	s := &p.Skipped[i]
	if s.Count++; s.Count <= maxLines {
		s.Lines = append(s.Lines, line.Line)
	}
}
