package client

// Still makes the client wait exactly what it must: without jitter, the longest
// backoff.
func (c *Client) Still() { c.random = func(int64) int64 { return 0 } }

// Most makes the client add all the jitter that it may.
func (c *Client) Most() { c.random = func(n int64) int64 { return n - 1 } }
