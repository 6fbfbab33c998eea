"""Settings: what may be set to what, and for how long."""

from __future__ import annotations

from unittest import mock

import pytest

from torchdynamo import config


def test_a_setting_is_an_attribute() -> None:
    assert config.cache_size_limit == 8
    config.cache_size_limit = 3
    assert config.cache_size_limit == config.knobs()["cache_size_limit"] == 3
    config.reset()
    assert config.cache_size_limit == 8


def test_a_misspelt_name_is_an_error_and_gets_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="did you mean 'cache_size_limit'"):
        config.cache_sise_limit = 3
    with pytest.raises(AttributeError, match="did you mean 'debug'"):
        _ = config.debugg
    with pytest.raises(AttributeError, match="there are automatic_dynamic_shapes, cache"):
        config.zzz = 1


def test_values_are_checked() -> None:
    with pytest.raises(TypeError, match="config.debug takes bool, not int"):
        config.debug = 1
    with pytest.raises(TypeError, match="takes int, not bool"):
        config.cache_size_limit = True
    with pytest.raises(ValueError, match="at least 1"):
        config.cache_size_limit = 0
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del config.reset


def test_patch_ends_with_its_block_also_when_that_raises() -> None:
    with pytest.raises(KeyError), config.patch(dynamic_shapes=True, cache_size_limit=2):
        assert config.dynamic_shapes
        raise KeyError
    assert (config.dynamic_shapes, config.cache_size_limit) == (False, 8)


@pytest.mark.parametrize("before", [8, 5])
def test_mock_sets_a_setting_back(before: int) -> None:
    with config.patch(cache_size_limit=before):
        with mock.patch.object(config, "cache_size_limit", 3):
            assert config.cache_size_limit == 3
        assert config.cache_size_limit == before
    with mock.patch("torchdynamo.config.cache_size_limit", 3):
        assert config.cache_size_limit == 3
    assert config.cache_size_limit == 8


def test_a_setting_that_is_deleted_has_its_default() -> None:
    config.cache_size_limit = 5
    del config.cache_size_limit
    assert config.cache_size_limit == 8


def test_patch_is_a_decorator_too() -> None:
    @config.patch(verbose=True)
    def verbose() -> bool:
        return config.verbose

    assert verbose()
    assert verbose()
    assert not config.verbose


def test_a_patch_with_one_bad_setting_changes_none() -> None:
    with pytest.raises(AttributeError), config.patch(verbose=True, nonsense=1):
        pass
    assert not config.verbose
