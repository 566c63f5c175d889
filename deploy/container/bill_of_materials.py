"""The bill of materials of a container image: its packages of Debian and of Python, as CycloneDX 1.6 in JSON.

    bill_of_materials.py ROOT VERSION FILE

ROOT is the image's root folder, VERSION that of penstock.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from email.parser import HeaderParser
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

_PYTHON = "usr/lib/penstock"


def _debian(root: Path) -> Iterator[Component]:
    """The packages that dpkg has installed."""
    parse = HeaderParser().parsestr
    for paragraph in (root / "var/lib/dpkg/status").read_text(encoding="utf-8").strip().split("\n\n"):
        package = parse(paragraph)
        name, version = package["Package"], package["Version"]
        where = {"arch": package["Architecture"], "distro": "debian-12"}
        yield _component(name, version, PackageURL("deb", "debian", name, version, qualifiers=where))


def _python(root: Path) -> Iterator[Component]:
    """The libraries that penstock brings, and itself."""
    for package in distributions(path=[str(root / _PYTHON)]):
        name, version = package.metadata["Name"].lower().replace("_", "-"), package.version
        yield _component(name, version, PackageURL("pypi", None, name, version))


def _component(name: str, version: str, url: PackageURL) -> Component:
    return Component(name=name, version=version, type=ComponentType.LIBRARY, purl=url, bom_ref=str(url))


def main(root: Path, version: str, file: Path) -> None:
    """Write the file."""
    bom = Bom(components=[*_debian(root), *_python(root)])
    image = Component(name="penstock", version=version, type=ComponentType.CONTAINER, bom_ref="image")
    bom.metadata.component = image
    bom.register_dependency(image, bom.components)
    make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_to_file(
        str(file), allow_overwrite=True, indent=2
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
