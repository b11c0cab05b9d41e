package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// hidden stands where something is not shown.
const hidden = "(hidden)"

// plainParameters are the parameters of a database's URL that may be shown. All
// others are hidden: a list of the secret ones would miss the next.
var plainParameters = []string{
	"application_name", "connect_timeout", "dbname", "host", "port", "sslcert", "sslkey", "sslmode", "sslrootcert",
	"sslsni", "target_session_attrs", "user",
}

// hostPort is what an operator may have given where a URL was wanted, and what
// cannot hold a secret.
var hostPort = regexp.MustCompile(`^[A-Za-z0-9.-]*(:[0-9]+)?$`)

// maskURL is a URL fit to be shown: without password, and without the values of
// parameters that are not known to be harmless. Whatever does not read as a URL
// is hidden as a whole, because a password with a slash or a question mark in
// it ends up where nobody would look for it.
func maskURL(text string) string {
	if hostPort.MatchString(text) {
		return text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Opaque != "" || u.Fragment != "" {
		return hidden
	}
	if strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery, "@") {
		return hidden
	}
	if u.User == nil && u.RawQuery == "" {
		return text
	}
	if _, has := u.User.Password(); has {
		u.User = url.UserPassword(u.User.Username(), "xxxxx")
	}
	query := u.Query()
	for name := range query {
		if !slices.Contains(plainParameters, name) {
			query[name] = []string{"xxxxx"}
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}
