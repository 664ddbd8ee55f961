"""Remotes as people write them: read, refused where they hold credentials or reach files of the machine."""

from __future__ import annotations

import pytest

from starverse.domain.catalog.remotes import (
    IN_PLACE_BACKENDS,
    Remote,
    backend_of,
    hidden_values,
    read_config,
    read_remote,
    shown,
    whole_config,
    without_options,
)


@pytest.mark.parametrize(
    ("text", "remote"),
    [
        ("lab:", Remote("lab", "", (), "")),
        ("lab:a/b c/中文", Remote("lab", "", (), "a/b c/中文")),
        ("my lab+1@x:/abs:colon", Remote("my lab+1@x", "", (), "/abs:colon")),
        ("lab,chunk_size=5M:b", Remote("lab", "", (("chunk_size", "5M"),), "b")),
        (":http,url='https://h:8080/x,y':z", Remote("", "http", (("url", "https://h:8080/x,y"),), "z")),
        (':s3,x="A ""B""",flag:b/k', Remote("", "s3", (("x", 'A "B"'), ("flag", "true")), "b/k")),
        (":Google Cloud Storage:b", Remote("", "google cloud storage", (), "b")),
    ],
)  # fmt: skip
def test_a_remote_is_read(text: str, remote: Remote) -> None:
    assert read_remote(text) == remote


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "NAME:path"),
        ("nocolon", "NAME:path"),
        ("/etc/passwd", "NAME:path"),
        ("../x:y", "NAME:path"),
        ("-x:y", "NAME:path"),
        ("lab:a\nb", "printable"),
        ("lab:a\0b", "printable"),
        ("lab:" + "x" * 4096, "at most"),
        ("lab,a=b", "NAME:path"),
        ("lab,a='b:c", "NAME:path"),
        (":local:/etc", "local is none"),
        (":LOCAL:/etc", "local is none"),
        (":alias:", "alias is none"),
        (":union:", "union is none"),
        (":combine:", "combine is none"),
        (":cache:", "cache is none"),
        (":memory:", "memory is none"),
        (":crypt:x", "crypt as a part of the configuration"),
        (":nothing:", "a backend of rclone"),
        (":sftp,pass=hunter2:", "without pass"),
        ("lab,secret_access_key=hunter2:", "without secret_access_key"),
        ("lab,token=hunter2:", "without token"),
        ("lab,key_pem=hunter2:", "without key_pem"),
        ("lab,remote=/etc:", "without remote"),
        ("lab,upstreams=/etc:", "without upstreams"),
        (":webdav,bearer_token_command=hunter2:", "without bearer_token_command"),
        (":sftp,ssh=hunter2:", "without ssh"),
        (":webdav,url='http://me:hunter2@h/':", "without a user"),
    ],
)
def test_what_is_no_remote_is_refused_without_repeating_a_value(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        read_remote(text)
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in without_options(text)


CONFIG = """
[s3]
type = s3
provider = Other
access_key_id = AKIDEXAMPLE
secret_access_key = hunter2-secret

[sealed]
type = crypt
remote = chunks:folder
password = hunter2-crypt

[chunks]
type = chunker
remote = s3:bucket

[box]
type = sftp
host = storage.example.org
pass = hunter2
"""


def test_a_configuration_is_read_to_the_backend_in_the_end() -> None:
    sections = read_config(CONFIG)
    assert sections["s3"]["secret_access_key"] == "hunter2-secret"
    found = {name: backend_of(read_remote(f"{name}:"), sections) for name in sections}
    assert found == {"s3": "s3", "sealed": "s3", "chunks": "s3", "box": "sftp"}
    assert "sftp" in IN_PLACE_BACKENDS
    assert "s3" not in IN_PLACE_BACKENDS
    assert backend_of(read_remote(":http:"), {}) == "http"


@pytest.mark.parametrize("text", ["hunter2", "[a\ntype=s3", "[a]\nhunter2", "[a]\nx=1\n[a]\ny=hunter2"])
def test_a_configuration_that_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match=r"rclone\.conf") as refused:
        read_config(text)
    assert refused.value.__cause__ is None
    assert "hunter2" not in str(refused.value)


def test_a_configuration_with_a_password_is_refused() -> None:
    with pytest.raises(ValueError, match="without a password"):
        read_config("# Encrypted rclone configuration File\n\nRCLONE_ENCRYPT_V0:\nabc")


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("type = local", "local is none"),
        ("type = alias\nremote = /etc", "alias is none"),
        ("type = crypt\nremote = /etc", "wraps another part"),
        ("type = crypt\nremote = :local:/etc", "wraps another part"),
        ("type = crypt\nremote = other:x", "a part of the configuration"),
        ("type = crypt\nremote = here:x", "at most 5"),
        ("type = s3\nenv_auth = true", "env_auth"),
        ("type = webdav\nbearer_token_command = x", "bearer_token_command"),
        ("type = sftp\nssh = x", "without ssh"),
        ("host = x", "a backend of rclone"),
    ],
)
def test_what_reaches_the_machine_is_refused(section: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        backend_of(read_remote("here:"), read_config(f"[here]\n{section}\n"))


def test_the_whole_configuration_names_the_remote_twice_with_its_options() -> None:
    sections = read_config(CONFIG)
    text = whole_config(read_remote("s3,chunk_size=5M:b"), sections)
    made = read_config(text)
    assert made["starverse-remote"] == made["starverse-aside"] == sections["s3"] | {"chunk_size": "5M"}
    assert made["sealed"] == sections["sealed"]
    fly = read_config(whole_config(read_remote(":http,url='http://h/':x"), {}))
    assert fly["starverse-remote"] == {"type": "http", "url": "http://h/"}


def test_words_of_rclone_are_shown_without_values() -> None:
    hidden = hidden_values(read_config(CONFIG))
    said = "s3 AKIDEXAMPLE: hunter2-secret, GET https://me:pw@storage.example.org/x\n: \x1b[31mno"
    assert shown(said, hidden) == "s3 ***: ***, GET https://storage.example.org/x :  [31mno"
