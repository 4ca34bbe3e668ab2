package daemon

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/councild/councild/internal/config"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/disagreement"
)

// calibration returns the newest calibration that was made with an instrument, or nil if there is none. An instrument
// is a backend together with its model, its prompt or rule, its terms and its threshold. calibration reads the file
// each time, so that a daemon sees a new calibration at once. It skips lines that are no calibrations, such as the
// fragment that an interrupted write leaves.
func calibration(cfg config.Config, instrument council.Calibration) (*council.Calibration, error) {
	f, err := os.Open(cfg.CalibrationFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
	}
	defer func() { _ = f.Close() }() // after reading, an error of Close does not matter
	var newest *council.Calibration
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		var c council.Calibration
		if json.Unmarshal(line, &c) == nil && disagreement.Calibrates(c, instrument) {
			newest = &c
		}
		if errors.Is(err, io.EOF) {
			return newest, nil
		}
		if err != nil {
			return nil, fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
		}
	}
}

// keepCalibration appends a calibration to the file. The calibration is on disk when keepCalibration returns nil. The
// line begins with a line break, because an interrupted write can have left an unfinished line before it.
func keepCalibration(cfg config.Config, c council.Calibration) (err error) {
	path := cfg.CalibrationFile()
	defer func() {
		if err != nil {
			err = fmt.Errorf("LLM_COUNCIL_DATA_DIR: %w", err)
		}
	}()
	if path == "" {
		return errors.New("is off, and a calibration is kept there: name a directory")
	}
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	const forOwner = 0o700
	if err := os.MkdirAll(filepath.Dir(path), forOwner); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Concat([]byte("\n"), line, []byte("\n")))
	return errors.Join(err, f.Sync(), f.Close())
}
