// Package journaltest is for tests. It runs a JetStream cluster of three servers inside the process of the test, and
// links to a server that can fail.
package journaltest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Cluster is three servers on loopback ports.
type Cluster struct {
	Servers []*server.Server
	Dir     string // the directory of the servers' files
	URL     string // the URLs of all servers, for LLM_COUNCIL_NATS_URL

	options []*server.Options
}

// Start starts a cluster. The end of the test stops it.
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	c, err := New(tb.TempDir())
	tb.Cleanup(c.Stop)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// New starts a cluster with its files below dir, and waits until it has a leader. The caller stops it, even after an
// error.
//
// The servers must know each other's ports before they start. If another process takes one of these ports in between,
// New tries again with other ports.
func New(dir string) (c *Cluster, err error) {
	for attempt := range 3 {
		if c, err = begin(filepath.Join(dir, strconv.Itoa(attempt))); err == nil {
			break
		}
		c.Stop()
	}
	c.Dir = dir
	return c, err
}

func begin(dir string) (*Cluster, error) {
	c := &Cluster{}
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return c, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			return c, err
		}
	}
	var urls []string
	for i, port := range ports {
		c.options = append(c.options, &server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: -1, NoSigs: true, JetStream: true, SyncAlways: true,
			StoreDir: filepath.Join(dir, strconv.Itoa(i)), JetStreamMaxStore: 16 << 30, JetStreamMaxMemory: 1 << 30, Routes: routes,
			// The servers do not tell clients their addresses, so that a client behind a proxy does not bypass the
			// proxy.
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port, NoAdvertise: true},
		})
		c.Servers = append(c.Servers, nil)
		if err := c.Run(i); err != nil {
			return c, err
		}
		urls = append(urls, c.Servers[i].ClientURL())
	}
	c.URL = strings.Join(urls, ",")
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, s := range c.Servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return c, nil
			}
		}
	}
	return c, errors.New("the servers found no leader")
}

// Run starts server i, which must not be running. The server keeps the address that it had before.
func (c *Cluster) Run(i int) (err error) {
	o := c.options[i]
	if c.Servers[i], err = server.NewServer(o); err != nil {
		return err
	}
	c.Servers[i].Start()
	if !c.Servers[i].ReadyForConnections(30 * time.Second) {
		return errors.New("a server did not start")
	}
	o.Port = c.Servers[i].Addr().(*net.TCPAddr).Port
	return nil
}

// Stop stops the servers that run.
func (c *Cluster) Stop() {
	for _, s := range c.Servers {
		if s != nil {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
}
