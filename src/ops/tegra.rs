//! The GPU of a Jetson. It is on no PCI bus and NVML reports little of it, so the kernel's files are read: the device tree, devfreq,
//! thermal zones, the power monitor (INA3221) and `/proc/meminfo`.
//!
//! Written after what is known of Orin with JetPack 5 and 6; Thor has NVML, and a part of these files. Not run on a Jetson.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::gpu_stats::{GpuCard, Strain};
use spotter_engine::open::is_tegra;

const DEVICE_TREE: &str = "sys/firmware/devicetree/base";
/// The GPU among the devices with a clock: of JetPack 6 on Orin, of JetPack 5, of Xavier, and the shader clusters of Thor.
const GPU_CLOCKS: [&str; 4] = [".gpu", ".ga10b", ".gv11b", "gpu-gpc-0"];

/// The files of its figures; those that were found.
#[derive(Debug)]
pub struct TegraGpu {
    root: PathBuf,
    devfreq: Option<PathBuf>,
    /// Of the thermal zone, in thousandths of a degree.
    temperature: Option<PathBuf>,
    /// Voltage and current of the rail that feeds the GPU; on some boards it feeds the CPU too.
    power: Option<[PathBuf; 2]>,
}

impl TegraGpu {
    /// `None` on other machines.
    pub fn find(root: &Path) -> Option<Self> {
        is_tegra(root).then(|| Self {
            root: root.to_owned(),
            devfreq: entries(&root.join("sys/class/devfreq")).find(|device| {
                let name = device.file_name().unwrap_or_default().to_string_lossy();
                GPU_CLOCKS.iter().any(|end| name.ends_with(end))
            }),
            temperature: entries(&root.join("sys/class/thermal"))
                .find(|zone| {
                    let kind = text(&zone.join("type")).unwrap_or_default();
                    kind.to_lowercase().starts_with("gpu")
                })
                .map(|zone| zone.join("temp")),
            power: entries(&root.join("sys/class/hwmon")).find_map(|monitor| gpu_rail(&monitor)),
        })
    }

    pub fn card(&self) -> GpuCard {
        let line = |path: PathBuf| text(&path).unwrap_or_default();
        GpuCard {
            name: line(self.root.join(DEVICE_TREE).join("model")),
            // The driver is a part of the kernel.
            driver: line(self.root.join("proc/sys/kernel/osrelease")),
            power_limit_w: None,
            sm_max_mhz: self.clock_mhz("max_freq"),
        }
    }

    pub fn strain(&self) -> Strain {
        let load = self.devfreq.as_ref().and_then(|device| {
            let load = number(&device.join("device/load"));
            load.or_else(|| number(&device.join("load")))
        });
        let power = self.power.as_ref();
        Strain {
            power_w: power.and_then(|[mv, ma]| Some(number(mv)? * number(ma)? / 1e6)),
            sm_mhz: self.clock_mhz("cur_freq"),
            celsius: self.temperature.as_ref().and_then(|zone| {
                // A GPU without power has no temperature: the read fails, or gives -256 degrees.
                let celsius = number(zone)? / 1e3;
                (celsius > -100.0).then_some(celsius)
            }),
            use_pct: load.map(|per_mille| per_mille / 10.0),
            decoder_pct: None,
            memory_mib: used_mib(&text(&self.root.join("proc/meminfo")).unwrap_or_default()),
        }
    }

    fn clock_mhz(&self, file: &str) -> Option<f64> {
        let hertz = number(&self.devfreq.as_ref()?.join(file))?;
        Some(hertz / 1e6)
    }
}

/// In the order of their names, so that each start reads the same ones.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    entries.sort();
    entries.into_iter()
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim_end_matches(['\0', '\n']).to_owned())
}

fn number(path: &Path) -> Option<f64> {
    text(path)?.trim().parse().ok()
}

/// Voltage (mV) and current (mA) of the channel of an INA3221 that is labelled as the GPU's.
fn gpu_rail(monitor: &Path) -> Option<[PathBuf; 2]> {
    if text(&monitor.join("name"))? != "ina3221" {
        return None;
    }
    (1..=3)
        .find(|channel| {
            let label = text(&monitor.join(format!("in{channel}_label")));
            label.is_some_and(|label| label.contains("GPU"))
        })
        .map(|channel| {
            let of = |kind: &str| monitor.join(format!("{kind}{channel}_input"));
            [of("in"), of("curr")]
        })
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
    const FILES: [(&str, &str); 16] = [
        (
            "sys/firmware/devicetree/base/model",
            "NVIDIA Jetson Orin NX Engineering Reference Developer Kit\0",
        ),
        ("proc/sys/kernel/osrelease", "5.15.148-tegra\n"),
        (
            "proc/meminfo",
            "MemTotal:  4194304 kB\nMemFree: 9 kB\nMemAvailable:  1048576 kB\n",
        ),
        ("sys/class/devfreq/15340000.vic/cur_freq", "115200000\n"),
        ("sys/class/devfreq/17000000.gpu/cur_freq", "612000000\n"),
        ("sys/class/devfreq/17000000.gpu/max_freq", "918000000\n"),
        ("sys/class/devfreq/17000000.gpu/device/load", "734\n"),
        ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
        ("sys/class/thermal/thermal_zone0/temp", "40000\n"),
        ("sys/class/thermal/thermal_zone1/type", "gpu-thermal\n"),
        ("sys/class/thermal/thermal_zone1/temp", "51250\n"),
        ("sys/class/hwmon/hwmon2/name", "ina3221\n"),
        ("sys/class/hwmon/hwmon2/in1_label", "VDD_IN\n"),
        ("sys/class/hwmon/hwmon2/in2_label", "VDD_CPU_GPU_CV\n"),
        ("sys/class/hwmon/hwmon2/in2_input", "5000\n"),
        ("sys/class/hwmon/hwmon2/curr2_input", "1400\n"),
    ];

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn jetson_figures_are_read_from_the_kernels_files() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (file, text) in FILES {
            write(root, file, text);
        }
        assert!(TegraGpu::find(root).is_none(), "no device tree names it");
        let compatible = "nvidia,p3768-0000+p3767-0000\0nvidia,tegra234\0";
        write(root, "sys/firmware/devicetree/base/compatible", compatible);
        let gpu = TegraGpu::find(root).unwrap();
        let card = gpu.card();
        assert!(card.name.ends_with("Developer Kit"), "{card:?}");
        assert_eq!(card.driver, "5.15.148-tegra");
        assert_eq!(card.sm_max_mhz, Some(918.0));
        let expected = Strain {
            power_w: Some(7.0),
            sm_mhz: Some(612.0),
            celsius: Some(51.25),
            use_pct: Some(73.4),
            decoder_pct: None,
            memory_mib: Some(3072.0),
        };
        assert_eq!(gpu.strain(), expected);

        // Without power it has neither, and every other file may be missing.
        write(root, "sys/class/thermal/thermal_zone1/temp", "-256000\n");
        assert_eq!(gpu.strain().celsius, None);
        for file in ["sys/class", "proc"] {
            fs::remove_dir_all(root.join(file)).unwrap();
        }
        assert_eq!(TegraGpu::find(root).unwrap().strain(), Strain::default());
    }
}
