//! Names that belong to somebody else: the language, its standard library,
//! an operating system, us.

use crate::manifest::Language;

/// Whose a module's name is, in words.
pub(super) fn by(module: &str, language: Language) -> Option<&'static str> {
    let is = |words: &str| words.split_ascii_whitespace().any(|word| word == module);
    if ["justapi", "python"].contains(&module) {
        return Some("it would shadow the package of that name");
    }
    if is(DEVICES) {
        return Some("Windows has a device of that name");
    }
    match language {
        Language::Python if is(PYTHON_KEYWORDS) => Some("it is a keyword of Python"),
        Language::Python if is(PYTHON_MODULES) => {
            Some("Python's standard library has a module of that name")
        }
        Language::Rust if is(RUST_WORDS) => Some("it is a word of Rust"),
        _ => None,
    }
}

const DEVICES: &str = "aux con nul prn com1 com2 com3 com4 com5 com6 com7 com8 com9 \
    lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9";

/// In lower case, as modules are, and with those that are keywords in some places only.
const PYTHON_KEYWORDS: &str = "and as assert async await break case class continue def del elif \
    else except false finally for from global if import in is lambda match none nonlocal not or \
    pass raise return true try type while with yield";

/// `sys.stdlib_module_names` of Python 3.11 to 3.14, without private ones.
const PYTHON_MODULES: &str = "\
    abc aifc annotationlib antigravity argparse array ast asynchat asyncio asyncore atexit \
    audioop base64 bdb binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath \
    cmd code codecs codeop collections colorsys compileall compression concurrent configparser \
    contextlib contextvars copy copyreg crypt csv ctypes curses dataclasses datetime dbm \
    decimal difflib dis distutils doctest email encodings ensurepip enum errno faulthandler \
    fcntl filecmp fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass \
    gettext glob graphlib grp gzip hashlib heapq hmac html http idlelib imaplib imghdr imp \
    importlib inspect io ipaddress itertools json keyword lib2to3 linecache locale logging \
    lzma mailbox mailcap marshal math mimetypes mmap modulefinder msilib msvcrt \
    multiprocessing netrc nis nntplib nt ntpath nturl2path numbers opcode operator optparse os \
    ossaudiodev pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posix \
    posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue \
    quopri random re readline reprlib resource rlcompleter runpy sched secrets select \
    selectors shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd \
    sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string stringprep struct \
    subprocess sunau symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile test termios \
    textwrap this threading time timeit tkinter token tokenize tomllib trace traceback \
    tracemalloc tty turtle turtledemo types typing unicodedata unittest urllib uu uuid venv \
    warnings wave weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile \
    zipimport zlib zoneinfo";
/// Keywords, those kept for later, and the crates that every crate has.
const RUST_WORDS: &str = "abstract alloc as async await become box break const continue core crate \
    do dyn else enum extern false final fn for gen if impl in let loop macro match mod move mut \
    override priv proc_macro pub ref return self static std struct super test trait true try type \
    typeof union unsafe unsized use virtual where while yield";
