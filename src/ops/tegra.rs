//! The GPU of a Jetson. It is on no PCI bus and NVML reports little of it, so the kernel's files are read: devfreq, thermal zones and
//! `/proc/meminfo`.
//!
//! Written after what is known of Orin with JetPack 5 and 6; Thor has NVML, and a part of these files. Not run on a Jetson.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::strain::Strain;
use spotter_engine::open::is_tegra;

/// The GPU among the devices with a clock: of JetPack 6 on Orin, of JetPack 5, of Xavier, and the shader clusters of Thor.
const GPU_CLOCKS: [&str; 4] = [".gpu", ".ga10b", ".gv11b", "gpu-gpc-0"];

/// The files of its figures; those that were found.
#[derive(Debug)]
pub struct TegraGpu {
    devfreq: Option<PathBuf>,
    /// Of the thermal zone, in thousandths of a degree.
    temperature: Option<PathBuf>,
    meminfo: PathBuf,
}

impl TegraGpu {
    /// `None` on other machines.
    pub fn find(root: &Path) -> Option<Self> {
        let is_gpu = |device: &PathBuf| {
            let name = device.file_name().unwrap_or_default().to_string_lossy();
            GPU_CLOCKS.iter().any(|end| name.ends_with(end))
        };
        let is_of_gpu = |zone: &PathBuf| {
            let kind = fs::read_to_string(zone.join("type"));
            kind.is_ok_and(|kind| kind.to_lowercase().starts_with("gpu"))
        };
        let zone = || entries(&root.join("sys/class/thermal")).find(is_of_gpu);
        is_tegra(root).then(|| Self {
            devfreq: entries(&root.join("sys/class/devfreq")).find(is_gpu),
            temperature: zone().map(|zone| zone.join("temp")),
            meminfo: root.join("proc/meminfo"),
        })
    }

    pub fn strain(&self) -> Strain {
        let load = self.devfreq.as_ref().and_then(|device| {
            let load = number(&device.join("device/load"));
            load.or_else(|| number(&device.join("load")))
        });
        Strain {
            celsius: self.temperature.as_ref().and_then(|zone| {
                // A GPU without power has no temperature: the read fails, or gives -256 degrees.
                let celsius = number(zone)? / 1e3;
                (celsius > -100.0).then_some(celsius)
            }),
            use_pct: load.map(|per_mille| per_mille / 10.0),
            memory_mib: used_mib(&fs::read_to_string(&self.meminfo).unwrap_or_default()),
            ..Strain::default()
        }
    }
}

/// In the order of their names, so that each start reads the same ones.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    entries.sort();
    entries.into_iter()
}

fn number(path: &Path) -> Option<f64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// GPU and CPU have the same memory: what anybody uses of it.
fn used_mib(meminfo: &str) -> Option<f64> {
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    Some((kib("MemTotal:")? - kib("MemAvailable:")?) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as those of an Orin NX with JetPack 6.
    const FILES: [(&str, &str); 8] = [
        (
            "proc/meminfo",
            "MemTotal:  4194304 kB\nMemFree: 9 kB\nMemAvailable:  1048576 kB\n",
        ),
        ("sys/class/devfreq/15340000.vic/device/load", "12\n"),
        ("sys/class/devfreq/17000000.gpu/device/load", "734\n"),
        ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
        ("sys/class/thermal/thermal_zone0/temp", "40000\n"),
        ("sys/class/thermal/thermal_zone1/type", "gpu-thermal\n"),
        ("sys/class/thermal/thermal_zone1/temp", "51250\n"),
        ("sys/class/hwmon/hwmon2/name", "ina3221\n"),
    ];

    #[test]
    fn jetson_figures_are_read_from_the_kernels_files() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (file, text) in FILES {
            write(file, text);
        }
        assert!(TegraGpu::find(root).is_none(), "no device tree names it");
        let compatible = "nvidia,p3768-0000+p3767-0000\0nvidia,tegra234\0";
        write("sys/firmware/devicetree/base/compatible", compatible);
        let gpu = TegraGpu::find(root).unwrap();
        let expected = Strain {
            celsius: Some(51.25),
            use_pct: Some(73.4),
            memory_mib: Some(3072.0),
            ..Strain::default()
        };
        assert_eq!(gpu.strain(), expected);

        // Without power it has neither, and every other file may be missing.
        write("sys/class/thermal/thermal_zone1/temp", "-256000\n");
        assert_eq!(gpu.strain().celsius, None);
        for file in ["sys/class", "proc"] {
            fs::remove_dir_all(root.join(file)).unwrap();
        }
        assert_eq!(TegraGpu::find(root).unwrap().strain(), Strain::default());
    }
}
