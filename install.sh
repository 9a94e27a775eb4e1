#!/bin/sh
# Installs the justapi binary for the current user, tries it from a checkout, or removes it again.
# POSIX sh: runs under dash, busybox ash and bash. Only main acts, and only the complete last line
# calls it, so a script that a broken download cut short does nothing.
set -eu

# A release ships its own copy of this script; tests/tidy keeps this equal to the workspace version.
DEFAULT_VERSION=0.1.0

TAB=$(printf '\t')
NEWLINE='
'

usage() {
  cat <<'EOF'
Installs justapi for the current user. Never asks, never needs root, never calls sudo.

usage: sh install.sh [--version X] [--prefix DIR] [--no-modify-path] [--no-verify] [--yes]
       sh install.sh --try
       sh install.sh --uninstall

Without a download URL, and inside a source checkout, it builds with cargo and installs the result.

options:
  --try             build in the checkout's target directory, the Python package into an environment
                    there, and serve the demo; installs nothing
  --uninstall       remove what the receipt of earlier installs lists
  --version X       the version to install (default: the one this script came with)
  --prefix DIR      install DIR/bin/justapi
  --no-modify-path  leave shell start-up files alone
  --no-verify       install an archive whose checksum cannot be checked
  -y, --yes         accepted for scripts; there is nothing to confirm
  -h, --help        this text

environment:
  JUSTAPI_INSTALL_DIR   directory of the binary (default: ~/.local/bin); --prefix wins
  JUSTAPI_DOWNLOAD_URL  directory of release archives: https://…, http://… or file:///…
                        holds justapi-<version>-<arch>-unknown-linux-musl.tar.gz and its .sha256
  XDG_DATA_HOME         the receipt is $XDG_DATA_HOME/justapi/receipt.json (default: ~/.local/share)

exit codes: 0 done, 1 failed, 2 wrong usage
EOF
}

say() { printf '%s\n' "$*" >&2; }
warn() { say "warning: $*"; }

# fail MESSAGE [HINT]
fail() {
  say "error: $1"
  [ $# -lt 2 ] || say "hint: $2"
  exit 1
}

wrong_usage() {
  say "error: $1"
  say "hint: sh install.sh --help lists the options"
  exit 2
}

has() { command -v "$1" >/dev/null 2>&1; }

main() {
  action=install modify_path=yes verify=yes version='' prefix=''
  while [ $# -gt 0 ]; do
    case $1 in
      --try) action=try ;;
      --uninstall) action=uninstall ;;
      --no-modify-path) modify_path=no ;;
      --no-verify) verify=no ;;
      -y | --yes) ;;
      -h | --help)
        usage
        exit 0
        ;;
      --version | --prefix)
        [ $# -ge 2 ] || wrong_usage "$1 needs a value"
        if [ "$1" = --version ]; then version=$2; else prefix=$2; fi
        shift
        ;;
      --version=*) version=${1#*=} ;;
      --prefix=*) prefix=${1#*=} ;;
      *) wrong_usage "unknown argument \`$1\`" ;;
    esac
    shift
  done
  version=${version#v}
  case $version in
    *[!0-9A-Za-z.+-]*) wrong_usage "\`$version\` is not a version" ;;
  esac
  case $action in
    try) try_checkout ;;
    uninstall) uninstall ;;
    install) install_binary ;;
  esac
}

locate_home() {
  if [ -z "${HOME:-}" ]; then
    HOME=$(home_from_passwd)
    [ -n "$HOME" ] || fail "HOME is not set and the user database has no home for uid $(id -u)" \
      "set HOME, for example: HOME=/path sh install.sh"
    export HOME
  fi
  HOME=${HOME%/}
  require_plain_path HOME "$HOME/"
  [ -d "$HOME/" ] || fail "HOME=$HOME is not a directory" "set HOME to a directory that exists"
  refuse_home_of_another_user

  data_home=$HOME/.local/share
  # The base directory specification says to ignore a relative path.
  case ${XDG_DATA_HOME:-} in /*) data_home=${XDG_DATA_HOME%/} ;; esac
  data_dir=$data_home/justapi
  require_plain_path XDG_DATA_HOME "$data_dir"
  receipt=$data_dir/receipt.json
  env_file=$data_dir/env
}

home_from_passwd() {
  uid=$(id -u)
  if has getent; then
    getent passwd "$uid" | cut -d: -f6
  elif [ -r /etc/passwd ]; then
    awk -F: -v uid="$uid" '$3 == uid { print $6; exit }' /etc/passwd
  fi
}

# Under sudo with the caller's HOME, every file written there would belong to root.
refuse_home_of_another_user() {
  [ "$(id -u)" = 0 ] || return 0
  case ${SUDO_UID:-0} in 0) return 0 ;; esac
  owner=$(owner_uid "$HOME/")
  [ "$owner" != 0 ] || return 0
  fail "running under sudo with HOME=$HOME, which belongs to uid $owner" \
    "run it without sudo; or, for all users: sudo -H sh install.sh --prefix /usr/local --no-modify-path"
}

owner_uid() {
  # shellcheck disable=SC2012 # stat has no portable form; only the owner column is read
  ls -ldn "$1" | awk '{ print $3; exit }'
}

# Paths go into shell files, PATH and JSON; these characters would need a different quoting in each.
require_plain_path() {
  case $2 in
    *[\"\'\\\$\`:\;]* | *"$NEWLINE"* | *"$TAB"*)
      fail "$1 holds a quote, backslash, dollar, colon, semicolon, tab or newline: $2" "choose a plain path"
      ;;
  esac
}

locate_install_dir() {
  if [ -n "$prefix" ]; then
    install_dir=${prefix%/}/bin
  else
    install_dir=${JUSTAPI_INSTALL_DIR:-$HOME/.local/bin}
  fi
  case $install_dir in
    /*) ;;
    *) install_dir=$(pwd)/$install_dir ;;
  esac
  while [ "$install_dir" != "${install_dir%/}" ]; do install_dir=${install_dir%/}; done
  require_plain_path "the install directory" "$install_dir"
  target=$install_dir/justapi
  [ ! -d "$target" ] || fail "$target is a directory" "choose another place with --prefix DIR"
}

install_binary() {
  locate_home
  locate_install_dir
  if [ -z "${JUSTAPI_DOWNLOAD_URL:-}" ]; then
    locate_checkout || fail "nothing to install from: JUSTAPI_DOWNLOAD_URL is not set and this is no source checkout" \
      "set JUSTAPI_DOWNLOAD_URL to a directory of release archives, or run it in a checkout"
    build_checkout
  fi

  created_directories='' finished=no
  # The scratch directory lies beside the target: /tmp may be mounted noexec, and mv must be a rename.
  work=$install_dir/.justapi-install.$$
  trap clean_up EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  make_directory "$install_dir"
  make_directory "$data_dir"
  mkdir "$work" 2>/dev/null || fail "cannot write to $install_dir" "choose another place with --prefix DIR"
  [ -w "$data_dir" ] || fail "cannot write to $data_dir, which keeps the receipt" "set XDG_DATA_HOME to a directory you own"

  new=$work/justapi
  if [ -n "${JUSTAPI_DOWNLOAD_URL:-}" ]; then
    fetch_release
  else
    source="checkout $checkout"
    cp "$built" "$new"
  fi
  chmod 755 "$new"
  reported=$("$new" --version 2>/dev/null </dev/null) ||
    fail "the new binary does not run on this machine ($(uname -s) $(uname -m))" \
      "a noexec mount? choose another place with --prefix DIR"
  installed_version=$(printf '%s\n' "$reported" | awk 'NR == 1 { gsub(/[^0-9A-Za-z.+-]/, "", $2); print $2 }')
  binary_sha256=$(sha256 "$new") || binary_sha256=''

  read_receipt
  if [ -e "$target" ] && ! grep -qxF -- "$target" "$work/files"; then
    warn "replacing $target, which this script did not put there"
  fi
  printf '%s\n' "$target" >>"$work/files"
  path_report=''
  set_up_path
  # The receipt comes first: whatever happens next, --uninstall knows about it.
  write_receipt
  mv -f "$new" "$target"
  finished=yes
  report
}

clean_up() {
  status=$?
  trap - EXIT
  rm -rf "$work"
  if [ "$finished" = no ]; then
    printf '%s' "$created_directories" | sort -r | while IFS= read -r directory; do
      rmdir "$directory" 2>/dev/null || :
    done
  fi
  exit "$status"
}

# Like mkdir -p, and remembers which directories are ours to remove again.
make_directory() {
  [ ! -d "${1:-/}" ] || return 0
  make_directory "${1%/*}"
  # Made already, where the path has a doubled slash.
  [ ! -d "$1" ] || return 0
  mkdir "$1" 2>/dev/null || fail "cannot create $1" "choose another place with --prefix DIR"
  created_directories=$created_directories$1$NEWLINE
}

fetch_release() {
  for tool in tar gzip; do
    has "$tool" || fail "$tool is missing: it unpacks the archive" "install it with your package manager"
  done
  [ "$(uname -s)" = Linux ] || fail "there are no release archives for $(uname -s)" \
    "run it in a source checkout: it builds with cargo"
  case $(uname -m) in
    x86_64 | amd64) arch=x86_64 ;;
    aarch64 | arm64) arch=aarch64 ;;
    *) fail "there are no release archives for $(uname -m)" "run it in a source checkout: it builds with cargo" ;;
  esac
  name=justapi-${version:-$DEFAULT_VERSION}-$arch-unknown-linux-musl.tar.gz
  base=${JUSTAPI_DOWNLOAD_URL%/}
  source="archive $name"
  say "fetching $base/$name"
  fetch "$base/$name" "$work/$name" || fail "cannot fetch $base/$name" "check JUSTAPI_DOWNLOAD_URL and --version"
  if [ "$verify" = yes ]; then
    verify_archive
  else
    warn "not checking the checksum of $name (--no-verify)"
  fi
  mkdir "$work/unpacked"
  # -o: the files belong to the user who unpacks, also when that is root.
  tar -xzof "$work/$name" -C "$work/unpacked" || fail "cannot unpack $name" "fetch it again"
  for candidate in "$work/unpacked/justapi" "$work/unpacked"/*/justapi "$work/unpacked"/*/bin/justapi; do
    if [ -f "$candidate" ] && [ ! -L "$candidate" ]; then
      mv "$candidate" "$new"
      return 0
    fi
  done
  fail "$name holds no justapi binary" "check JUSTAPI_DOWNLOAD_URL"
}

verify_archive() {
  sha256 /dev/null >/dev/null || fail "no sha256sum, shasum or openssl here to check the archive with" \
    "install one of them; --no-verify installs unchecked"
  fetch "$base/$name.sha256" "$work/$name.sha256" || fail "cannot fetch the checksum $base/$name.sha256" \
    "ask for it to be published; --no-verify installs unchecked"
  expected=$(awk 'NR == 1 { print tolower($1) }' "$work/$name.sha256")
  case $expected in
    *[!0-9a-f]* | '') expected='' ;;
  esac
  [ ${#expected} -eq 64 ] || fail "$name.sha256 holds no sha256 checksum" "check JUSTAPI_DOWNLOAD_URL"
  found=$(sha256 "$work/$name")
  [ "$found" = "$expected" ] || fail "checksum mismatch for $name: expected $expected, found $found" \
    "fetch it again; if it stays, the archive was changed"
}

# Prints the checksum; fails when there is no tool for it.
sha256() {
  if has sha256sum; then
    sha256sum <"$1" | cut -d' ' -f1
  elif has shasum; then
    shasum -a 256 <"$1" | cut -d' ' -f1
  elif has openssl; then
    openssl dgst -sha256 <"$1" | sed 's/^.*= *//'
  else
    return 1
  fi
}

# fetch URL FILE
fetch() {
  case $1 in
    file:///*) cp "${1#file://}" "$2" 2>/dev/null && return 0 || return 1 ;;
    https://*) protocols='=https' ;;
    http://*) protocols='=http,https' ;;
    *) fail "JUSTAPI_DOWNLOAD_URL must start with https://, http:// or file:///" "now: ${JUSTAPI_DOWNLOAD_URL}" ;;
  esac
  curl=$(command -v curl || :)
  # A curl from snap cannot write outside its own directories.
  case $curl in */snap/*) curl='' ;; esac
  if [ -n "$curl" ]; then
    "$curl" --proto "$protocols" --fail --silent --show-error --location --retry 3 --output "$2" "$1"
  elif has wget; then
    wget -q -O "$2" "$1"
  elif has python3; then
    python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])' "$1" "$2"
  else
    fail "no curl, wget or python3 here to download with" "install one of them with your package manager"
  fi
}

# The start-up files get one line that sources the env file; the env file can run any number of times.
set_up_path() {
  case ":${PATH:-}:" in
    *":$install_dir:"*)
      path_state=present
      return 0
      ;;
  esac
  if [ "$modify_path" = no ]; then
    path_state=manual
    return 0
  fi
  path_state=added
  write_env_file
  case $env_file in
    "$HOME"/*) env_line=". \"\$HOME/${env_file#"$HOME"/}\"" ;;
    *) env_line=". \"$env_file\"" ;;
  esac

  edited=no
  # A login bash reads only the first of .bash_profile, .bash_login and .profile: each that exists gets
  # the line, none is created beside another.
  for startup in .profile .bash_profile .bash_login .bashrc; do
    [ ! -f "$HOME/$startup" ] || add_line "$HOME/$startup" "$env_line"
  done
  for startup in .zshrc .zshenv; do
    if [ -f "${ZDOTDIR:-$HOME}/$startup" ]; then
      add_line "${ZDOTDIR:-$HOME}/$startup" "$env_line"
      break
    fi
  done
  write_fish_file
  # Nothing to edit: .profile masks no other file.
  [ "$edited" = yes ] || add_line "$HOME/.profile" "$env_line"
  [ ! -f "${GITHUB_PATH:-}" ] || add_line "$GITHUB_PATH" "$install_dir"
}

write_env_file() {
  cat >"$work/env" <<EOF
# Puts justapi on PATH, once. Written by the installer of justapi.
case ":\${PATH}:" in
  *":$install_dir:"*) ;;
  *) export PATH="$install_dir:\$PATH" ;;
esac
EOF
  mv -f "$work/env" "$env_file"
  printf '%s\n' "$env_file" >>"$work/files"
}

write_fish_file() {
  fish_home=$HOME/.config/fish
  case ${XDG_CONFIG_HOME:-} in /*) fish_home=${XDG_CONFIG_HOME%/}/fish ;; esac
  [ -d "$fish_home" ] || return 0
  require_plain_path XDG_CONFIG_HOME "$fish_home"
  make_directory "$fish_home/conf.d"
  fish_file=$fish_home/conf.d/justapi.fish
  cat >"$work/fish" <<EOF
# Puts justapi on PATH, once. Written by the installer of justapi.
contains -- "$install_dir" \$PATH; or set -gx PATH "$install_dir" \$PATH
EOF
  mv -f "$work/fish" "$fish_file"
  printf '%s\n' "$fish_file" >>"$work/files"
  path_report="$path_report  wrote $fish_file$NEWLINE"
  edited=yes
}

# add_line FILE LINE: appends the line unless the file has it.
add_line() {
  case $1 in *"$NEWLINE"* | *"$TAB"* | *\"* | *\\*) warn "not editing $1: its name needs quoting" && return 0 ;; esac
  if [ -f "$1" ] && grep -qxF -- "$2" "$1"; then
    edited=yes
    grep -qF -- "$1$TAB$2$TAB" "$work/lines" || printf '%s\t%s\tno\tno\n' "$1" "$2" >>"$work/lines"
    return 0
  fi
  created=no newline_added=no
  if [ ! -e "$1" ]; then
    created=yes
  elif [ -n "$(tail -c 1 "$1")" ]; then
    newline_added=yes
  fi
  if ! { [ ! -e "$1" ] || [ -w "$1" ]; }; then
    warn "cannot write to $1; add this line to it: $2"
    return 0
  fi
  [ "$newline_added" = no ] || printf '\n' >>"$1"
  printf '%s\n' "$2" >>"$1"
  printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$created" "$newline_added" >>"$work/lines"
  path_report="$path_report  added to $1: $2$NEWLINE"
  edited=yes
}

report() {
  say "installed justapi $installed_version to $target"
  printf '%s' "$path_report" >&2
  case $path_state in
    present) say "next: justapi --help" ;;
    added)
      say "next: open a new shell, or run: $env_line"
      say "then: justapi --help"
      ;;
    manual) say "next: add it to your PATH: export PATH=\"$install_dir:\$PATH\"" ;;
  esac
  warn_if_shadowed
}

# Another justapi that the shell would find before ours.
warn_if_shadowed() {
  rest=${PATH:-}:
  while [ -n "$rest" ]; do
    directory=${rest%%:*}
    rest=${rest#*:}
    [ "$directory" != "$install_dir" ] || return 0
    if [ -f "$directory/justapi" ] && [ -x "$directory/justapi" ]; then
      # Ours goes to the front of PATH in new shells; until then, and if PATH is set otherwise, this one wins.
      warn "another justapi comes first on PATH: $directory/justapi"
      return 0
    fi
  done
}

# Reads the receipt into $work/files, $work/directories and $work/lines; entries that are gone are dropped.
read_receipt() {
  : >"$work/files"
  : >"$work/directories"
  : >"$work/lines"
  printf '%s' "$created_directories" >"$work/directories"
  [ -f "$receipt" ] || return 0
  receipt_list files | while IFS= read -r file; do
    if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\n' "$file"; fi
  done >"$work/files"
  receipt_list directories >>"$work/directories"
  receipt_lines | while IFS=$TAB read -r file line created newline_added; do
    if [ -f "$file" ] && grep -qxF -- "$line" "$file"; then
      printf '%s\t%s\t%s\t%s\n' "$file" "$line" "$created" "$newline_added"
    fi
  done >"$work/lines"
}

# receipt_list KEY: the strings of an array, one a line.
receipt_list() {
  awk -v key="\"$1\": [" '
    index($0, key) { inside = index($0, "]") == 0; next }
    inside && /^ *\]/ { inside = 0 }
    inside { sub(/^ *"/, ""); sub(/",? *$/, ""); print }
  ' "$receipt"
}

# The path_lines objects as file, line, created, newline_added, separated by tabs.
receipt_lines() {
  sed 's/\\"/"/g' "$receipt" | awk '
    function value(text) { sub(/^[^:]*: "?/, "", text); sub(/"?,? *$/, "", text); return text }
    /^ *"file": / { file = value($0) }
    /^ *"line": / { line = $0; sub(/^ *"line": "/, "", line); sub(/",? *$/, "", line) }
    /^ *"created": / { created = value($0) == "true" ? "yes" : "no" }
    /^ *"newline_added": / { newline = value($0) == "true" ? "yes" : "no"; print file "\t" line "\t" created "\t" newline }
  '
}

write_receipt() {
  printf '%s' "$created_directories" >>"$work/directories"
  checksum=null
  [ -z "$binary_sha256" ] || checksum=\"$binary_sha256\"
  {
    printf '{\n  "schema": 1,\n  "version": "%s",\n  "sha256": %s,\n' "$installed_version" "$checksum"
    printf '  "source": "%s",\n' "$(printf '%s' "$source" | sed 's/[\\"]/\\&/g')"
    json_array files "$work/files"
    json_array directories "$work/directories"
    printf '  "path_lines": ['
    sed 's/"/\\"/g' "$work/lines" | awk -F '\t' '
      { printf "%s\n    {\n      \"file\": \"%s\",\n      \"line\": \"%s\",\n", (NR > 1 ? "," : ""), $1, $2 }
      { printf "      \"created\": %s,\n      \"newline_added\": %s\n    }", $3 == "yes" ? "true" : "false", $4 == "yes" ? "true" : "false" }
      END { if (NR) printf "\n  " }
    '
    printf ']\n}\n'
  } >"$work/receipt.json"
  mv -f "$work/receipt.json" "$receipt"
}

# json_array KEY FILE: the distinct lines of the file as strings.
json_array() {
  sort -u "$2" | awk -v key="$1" '
    BEGIN { printf "  \"%s\": [", key }
    { printf "%s\n    \"%s\"", (NR > 1 ? "," : ""), $0 }
    END { print (NR ? "\n  ]," : "],") }
  '
}

uninstall() {
  locate_home
  if [ ! -f "$receipt" ]; then
    say "nothing to remove: there is no receipt at $receipt"
    return 0
  fi
  created_directories='' finished=yes
  work=$data_dir/.justapi-install.$$
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  mkdir "$work" 2>/dev/null || fail "cannot write to $data_dir" "run it as the user who installed justapi"
  read_receipt
  while IFS=$TAB read -r file line created newline_added; do
    remove_line
  done <"$work/lines"
  while IFS= read -r file; do
    rm -f "$file" || fail "cannot remove $file" "run it as the user who installed justapi"
    say "removed $file"
  done <"$work/files"
  directories=$(sort -ru "$work/directories")
  rm -f "$receipt"
  rm -rf "$work"
  # Children sort after their parents, so the reverse order empties them first.
  printf '%s\n' "$directories" | while IFS= read -r directory; do
    rmdir "$directory" 2>/dev/null || :
  done
  say "justapi is uninstalled"
}

# Takes $line out of $file and leaves everything else as it was, the final newline too.
remove_line() {
  last=$(tail -n 1 "$file")
  grep -vxF -- "$line" "$file" >"$work/rest" || :
  if [ "$newline_added" = yes ] && [ "$last" = "$line" ]; then
    rest=$(cat "$work/rest")
    printf '%s' "$rest" >"$work/rest"
  fi
  if [ "$created" = yes ] && [ ! -s "$work/rest" ]; then
    rm -f "$file"
    say "removed $file"
    return 0
  fi
  # Written in place: the file may be a symbolic link, and keeps its mode and owner.
  if cat "$work/rest" 2>/dev/null >"$file"; then
    say "removed from $file: $line"
  else
    warn "cannot write to $file; remove this line from it: $line"
  fi
}

# Sets $checkout: the directory of this script, or the current one when the script comes from a pipe.
locate_checkout() {
  checkout=.
  [ ! -f "$0" ] || checkout=$(dirname -- "$0")
  checkout=$(CDPATH='' cd -- "$checkout" && pwd -P)
  [ -f "$checkout/Cargo.lock" ] && [ -f "$checkout/cli/Cargo.toml" ]
}

# Builds the release binary into the checkout's own target directory and sets $built.
build_checkout() {
  require_build_tools
  if [ -n "$version" ] && [ "$version" != "$(workspace_value version)" ]; then
    fail "the checkout is version $(workspace_value version), not $version" "drop --version, or check that version out"
  fi
  say "building justapi $(workspace_value version) in $checkout/target (release; some minutes the first time)"
  unset CARGO_BUILD_TARGET CARGO_BUILD_TARGET_DIR CARGO_TARGET_DIR
  (cd "$checkout" && cargo build --release --locked -p justapi-cli --target-dir "$checkout/target" </dev/null) >&2 ||
    fail "the build failed" "the reason stands above; nothing was installed"
  built=$checkout/target/release/justapi
  [ -x "$built" ] || fail "cargo built no $built" "a build.target in a cargo configuration file moves it: remove that"
}

require_build_tools() {
  has cargo || fail "cargo is missing: building needs Rust $(workspace_value rust-version) or newer" \
    "install Rust from https://rustup.rs, open a new shell and run this again"
  required=$(workspace_value rust-version | cut -d. -f2)
  found=$(rustc --version 2>/dev/null | awk '{ split($2, part, "."); print part[2] }')
  if [ "${found:-0}" -lt "${required:-0}" ]; then
    fail "Rust 1.${found:-?} is too old: building needs $(workspace_value rust-version) or newer" "rustup update stable"
  fi
  has "${CC:-cc}" || has gcc || has clang ||
    fail "a C compiler is missing: the linker and the cryptography library need one" \
      "Debian, Ubuntu: apt-get install build-essential; Fedora: dnf install gcc; Alpine: apk add build-base"
}

# workspace_value KEY: a string of [workspace.package].
workspace_value() {
  awk -F '"' -v key="$1" '
    /^\[/ { inside = $0 == "[workspace.package]" }
    inside && $0 ~ "^" key " *=" { print $2; exit }
  ' "$checkout/Cargo.toml"
}

# Builds the Python package into an environment of its own in the target directory and sets $environment. The demo does
# without: what is missing for it is said, and nothing fails.
build_package() {
  environment=$checkout/target/try-venv
  if ! find_python; then
    leave_package_out "it needs Python 3.11 or newer with venv and pip (Debian, Ubuntu: apt-get install python3-venv)"
  elif ! has npm || ! has bash; then
    leave_package_out "its build needs bash and npm, which fetches the documentation pages' assets"
  else
    say "building the Python package into $environment (some minutes the first time)"
    (cd "$checkout" && fill_environment </dev/null) >&2 || leave_package_out "its build failed, for the reason above"
  fi
}

leave_package_out() {
  environment=''
  warn "no Python package: $1"
}

# The first interpreter that is new enough and can make environments.
find_python() {
  for python in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
      return 0
    fi
  done
  return 1
}

# The last word tells a broken environment from a whole one: what an interrupted run left is made anew.
fill_environment() {
  if [ ! -e "$environment/complete" ]; then
    rm -rf "$environment" && "$python" -m venv "$environment" || return 1
  fi
  rm -f "$environment/complete"
  rm -rf "$checkout/target/try-wheels"
  environment_pip install "$(sed -n 's/^requires = \["\(maturin[^"]*\)"\]$/\1/p' py/pyproject.toml)" || return 1
  bash py/build_wheel.sh "$environment/bin/python" "$checkout/target/try-wheels" || return 1
  environment_pip uninstall --yes justapi 2>/dev/null || return 1
  environment_pip install "$checkout"/target/try-wheels/justapi-*.whl || return 1
  : >"$environment/complete"
}

environment_pip() { "$environment/bin/python" -m pip --quiet --disable-pip-version-check --no-input "$@"; }

try_checkout() {
  locate_checkout || fail "--try builds from source, and this is no source checkout" \
    "clone the repository and run: sh install.sh --try"
  build_checkout
  build_package
  pick_port
  say ''
  if [ "$port" = 0 ]; then
    say "serving the demo; its address follows. Try, from another terminal, with that address:"
    url=http://127.0.0.1:PORT
  else
    url=http://127.0.0.1:$port
    say "serving the demo at $url  (Ctrl-C stops it). Try, from another terminal:"
  fi
  say "  curl -i $url/hello"
  say "  curl -i -H 'content-type: application/json' -d '{\"name\": \"Ada\"}' $url/echo"
  say "  curl -i $url/anything"
  if [ -n "$environment" ]; then
    say "or an API in Python, on another port:"
    say "  $environment/bin/justapi serve $checkout/py/examples/hello.py --port 8100"
    say "  curl -i 'http://127.0.0.1:8100/items/5?q=pen'"
  fi
  say ''
  # exec: Ctrl-C and signals reach the server itself, and no process stays behind.
  exec "$built" serve --addr "127.0.0.1:$port"
}

# 8000, or the next free port; 0, which lets the kernel pick, when ten in a row are busy.
pick_port() {
  port=8000
  while [ "$port" -lt 8010 ]; do
    port_is_busy "$port" || return 0
    port=$((port + 1))
  done
  port=0
}

# Reads the kernel's socket tables (state 0A is LISTEN); elsewhere the server itself says that the port is taken.
port_is_busy() {
  [ -r /proc/net/tcp ] || return 1
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port="$(printf ':%04X' "$1")" '
    $4 == "0A" && substr($2, length($2) - 4) == port { busy = 1 }
    END { exit !busy }
  '
}

# The braces: cut anywhere inside this line, the script is a syntax error and not another command.
{ main "$@"; }
