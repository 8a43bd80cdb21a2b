"""What holds the entries of a log: arrays, tables, dumps of databases, lines that a container runtime wrapped."""

import json
from typing import Any

import pytest

from metering.logs.containers import Container, container_of
from metering.records import RecordError


def opened(content: bytes, *, table: str = "") -> list[Any]:
    container = container_of(content[:64], table=table)
    found: list[Any] = []
    start = 0
    while (end := container.frame_end(content, start)) > 0:
        found += container.open(content[start:end])
        start = end
    return found


def test_an_array_is_cut_at_its_objects_however_it_is_laid_out() -> None:
    rows = [{"a": 1, "text": 'br{ace " \\'}, {"b": {"c": [1, {"d": 2}]}}]
    for indent in (None, 2):
        assert opened(json.dumps(rows, indent=indent).encode()) == rows


def test_a_row_of_csv_may_go_over_lines() -> None:
    content = b'\xef\xbb\xbfid,content,type\r\n1,"a ""quoted""\nline, two",2\r\n2,,3\r\n'
    assert opened(content, table="logs") == [
        {"id": "1", "content": 'a "quoted"\nline, two', "type": "2"}, {"id": "2", "content": "", "type": "3"},
    ]  # fmt: skip


def test_a_row_with_too_few_cells_is_refused() -> None:
    with pytest.raises(RecordError, match="2 cells under a header of 3"):
        opened(b"id,content,type\n1,2\n", table="logs")


DUMP = rb"""-- MySQL dump 10.13
/*!40101 SET NAMES utf8mb4 */;
CREATE TABLE `users` (`id` int);
INSERT INTO `users` VALUES (1);
CREATE TABLE `logs` (
  `id` bigint NOT NULL AUTO_INCREMENT,
  `content` longtext,
  `quota` decimal(10,2) DEFAULT '0',
  `type` bigint DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `idx_created_at_id` (`id`,`type`)
) ENGINE=InnoDB;
INSERT INTO `logs` VALUES (1,'it\'s (a); test\n',1.50,2),(2,'',0.00,NULL);
INSERT INTO `logs` (`type`, `id`) VALUES
(2,3),
(2,4);
"""


def test_a_dump_of_mysql_in_both_layouts() -> None:
    assert opened(DUMP, table="logs") == [
        {"id": 1, "content": "it's (a); test\n", "quota": "1.50", "type": 2},
        {"id": 2, "content": "", "quota": "0.00", "type": None},
        {"type": 2, "id": 3}, {"type": 2, "id": 4},
    ]  # fmt: skip


def test_lines_that_a_container_runtime_wrapped_are_unwrapped() -> None:
    container: Container = container_of(b"2026-10-05T10:00:00.123456789Z stdout F {")
    cri = b'2026-10-05T10:00:00.123456789Z stdout F {"a": 1}\n'
    assert list(container.open(cri)) == [{"a": 1}]
    assert list(container.open(cri.replace(b"stdout", b"stderr"))) == []
    docker = json.dumps({"log": '{"a": 2}\n', "stream": "stdout", "time": "2026-10-05T10:00:00.1Z"}).encode()
    assert list(container.open(docker)) == [{"a": 2}]
